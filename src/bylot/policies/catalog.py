"""The names of all policies, and where their classes are; a class is imported when it is used.

Nothing here imports the compiler, so that a list of names is quick. `bylot_paper` has the policies
that are only compared with others; they are found by name, like those of the product.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

from bylot.errors import PolicyError, install_command

if TYPE_CHECKING:
    from bylot.policies.base import Policy

PRODUCT = "bylot.policies"
RESEARCH = "bylot_paper.policies"
POLICY_HOMES: dict[str, "str | type[Policy]"] = {
    "distinct": f"{PRODUCT}.distinct:Distinct",
    "noisy-or": f"{PRODUCT}.noisy_or:NoisyOr",
    "tangent": f"{PRODUCT}.tangent:Tangent",
    "strict": f"{RESEARCH}.strict:Strict",
    "omd": f"{PRODUCT}.omd:Omd",
    "random": f"{RESEARCH}.random_panels:Random",
    "greedy": f"{RESEARCH}.bandits:Greedy",
    "cucb": f"{RESEARCH}.bandits:Cucb",
    "cbwk": f"{RESEARCH}.bandits:Cbwk",
    "ts": f"{RESEARCH}.bandits:Ts",
    "ts-bwk": f"{RESEARCH}.bandits:TsBwk",
    "moe": f"{RESEARCH}.bandits:Moe",
    "c2mab-v": f"{RESEARCH}.c2mab_v:C2mabV",
}
"""The module and class of every policy, or the class of one from outside, in the order of lists."""

POLICY_VARIANTS: dict[str, str] = {
    "omd-plain": "omd",
    "omd-sum": "omd",
    "omd-frozen": "omd",
    "cbwk-instant": "cbwk",
    "ts-bwk-instant": "ts-bwk",
}
"""Other settings that have a name, and their policy, which describes them."""

POLICY_NAMES = ("auto", *POLICY_HOMES, *POLICY_VARIANTS)
"""All built-in names that `find_policy` knows."""

LoadedT = TypeVar("LoadedT")


def load_policy_class(name: str) -> "type[Policy]":
    """Import the class of a policy, which may be in a package that is not installed."""
    home = POLICY_HOMES[name]
    if not isinstance(home, str):
        return home
    if not is_installed(name):
        raise PolicyError(
            f"policy {name!r} is part of bylot_paper, which is not installed beside bylot",
            remedy=f"run {install_command()}",
        )
    return resolve_name(home)  # type: ignore[no-any-return]


def is_installed(name: str) -> bool:
    """Return whether the package of a policy is installed."""
    home = POLICY_HOMES[POLICY_VARIANTS.get(name, name)]
    return not isinstance(home, str) or find_spec(home.partition(".")[0]) is not None


def make_named_policy(name: str) -> "Policy":
    """Return a policy with its default settings, or one of its variants."""
    kind = load_policy_class(POLICY_VARIANTS.get(name, name))
    settings = {} if name == kind.name else kind.variants[name][0]
    return kind(**settings)


def register_policy(policy: "type[Policy]") -> "type[Policy]":
    """Add a policy from outside, and its variants."""
    POLICY_HOMES[policy.name] = policy
    POLICY_VARIANTS.update(dict.fromkeys(policy.variants, policy.name))
    return policy


class LoadedOnUse(Mapping[str, LoadedT]):
    """A mapping whose values are loaded when they are used; listing its names loads nothing."""

    def __init__(self, load: Callable[[str], LoadedT], *tables: Mapping[str, object]) -> None:
        self.load = load
        self.tables = tables

    def __getitem__(self, name: str) -> LoadedT:
        return self.load(name)

    def __contains__(self, name: object) -> bool:
        return any(name in table for table in self.tables)

    def __iter__(self) -> Iterator[str]:
        return chain(*self.tables)

    def __len__(self) -> int:
        return sum(map(len, self.tables))


POLICY_CLASSES = LoadedOnUse(load_policy_class, POLICY_HOMES)
"""Classes of settings by name, in the order in which lists show them."""

POLICIES = LoadedOnUse(make_named_policy, POLICY_HOMES, POLICY_VARIANTS)
"""Policies that have a name: the classes with their default settings, and their variants."""


def list_policies(accepts: "Callable[[Policy], bool]") -> list[str]:
    """Return the names of the installed policies and variants that a function accepts."""
    return [name for name in POLICIES if is_installed(name) and accepts(POLICIES[name])]


def summarize_policy(name: str) -> str:
    """Return what the policy or variant of this name does, to follow its name in a sentence."""
    kind = load_policy_class(POLICY_VARIANTS.get(name, name))
    return kind.summary if name == kind.name else kind.variants[name][1]
