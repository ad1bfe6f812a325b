"""Policies by name; each file below reads like its pseudo-code."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from bylot.errors import PolicyError
from bylot.policies.auto import Auto
from bylot.policies.distinct import Distinct
from bylot.policies.dual import OCO, Adaptive, Anytime, Fixed
from bylot.policies.gate import Moe
from bylot.policies.index import Cbwk, Cucb, Greedy
from bylot.policies.omd import Omd
from bylot.policies.panel import Panel
from bylot.policies.policy import Confined, Derives, Policy
from bylot.policies.spelling import FORM, known, spelled
from bylot.policies.strict import Strict
from bylot.policies.tangent import Tangent
from bylot.policies.thompson import Ts, TsBwk
from bylot.policies.uniform import Random
from bylot.problem import Problem

KINDS: Mapping[str, type[Policy]] = {
    "distinct": Distinct,
    "panel": Panel,
    "tangent": Tangent,
    "strict": Strict,
    "omd": Omd,
    "random": Random,
    "greedy": Greedy,
    "cucb": Cucb,
    "cbwk": Cbwk,
    "ts": Ts,
    "ts-bwk": TsBwk,
    "moe": Moe,
}
"""Settings classes under the names they have in saved files; ours first, as lists show them."""

ALL: Mapping[str, type[Policy] | type[Auto]] = {**KINDS, "auto": Auto}
"""The same, and the one that leaves it to the problem."""

POLICIES: Mapping[str, Policy] = {
    **{name: kind() for name, kind in KINDS.items()},
    "omd-plain": Omd.plain(),
    "omd-sum": Omd(batch_gradient="sum"),
    "omd-frozen": Omd(freeze_dual_in_batch=True),
    "cbwk-instant": Cbwk(dual_on="instant"),
    "ts-bwk-instant": TsBwk(dual_on="instant"),
}
"""Policies that go by a name: those above with their usual settings, and variants of them."""

NAMES = ("auto", *POLICIES)
"""All that `named` knows."""

__all__ = [
    "KINDS",
    "NAMES",
    "POLICIES",
    "Adaptive",
    "Anytime",
    "Auto",
    "Cbwk",
    "Confined",
    "Cucb",
    "Derives",
    "Distinct",
    "Fixed",
    "Greedy",
    "Moe",
    "Omd",
    "Panel",
    "Policy",
    "Random",
    "Strict",
    "Tangent",
    "Ts",
    "TsBwk",
    "named",
    "read",
    "settled",
    "write",
]


def named(policy: str | Policy | Auto) -> Policy | Auto:
    """The policy of this name, or the given settings as they are.

    Settings other than the usual ones may follow a name:

    >>> named("panel:explore=0.02") == Panel(explore=0.02)
    True
    """
    if type(policy) in ALL.values():
        return policy  # type: ignore[return-value]
    name, colon, _ = policy.partition(":") if isinstance(policy, str) else (policy, "", "")
    if not isinstance(name, str) or name not in NAMES:
        close = get_close_matches(str(name), NAMES, n=1)
        meant = f"did you mean {close[0]!r}? The" if close else "the"
        more = f"; {FORM}" if isinstance(name, str) and set(name) & set("=(") else ""
        raise PolicyError(
            f"there is no policy {name!r}; {meant} ones there are: {', '.join(NAMES)}{more}"
        )
    usual = Auto() if name == "auto" else POLICIES[name]
    return spelled(usual, policy) if colon and isinstance(policy, str) else usual


def settled(policy: str | Policy | Auto, problem: Problem) -> Policy:
    """The policy that plays on a problem: the one of this name or these settings, or the one that
    the problem calls for.
    """
    found = named(policy)
    return found.settled(problem) if isinstance(found, Auto) else found


def write(policy: Policy | Auto) -> dict[str, Any]:
    """Settings as plain data, for saved files."""
    name = next(name for name, kind in ALL.items() if type(policy) is kind)
    settings = {field.name: getattr(policy, field.name) for field in fields(ALL[name])}
    if isinstance(policy, Omd):
        kind = next(name for name, oco in OCO.items() if isinstance(policy.dual, oco))
        settings["dual"] = {"kind": kind, **policy.dual._asdict()}
    return {"name": name, **settings}


def read(data: Mapping[str, Any]) -> Policy | Auto:
    """Settings from plain data; the inverse of `write`."""
    settings = dict(data)
    name, dual = settings.pop("name"), settings.get("dual")
    if name not in ALL or (dual and dual["kind"] not in OCO):
        raise PolicyError(f"this bylot does not know the policy {dict(data)!r}; upgrade it")
    later = "; if a later bylot wrote this, upgrade it"
    known(name, settings, [field.name for field in fields(ALL[name])], later)
    if dual:
        settings["dual"] = OCO[dual["kind"]](dual["step"])
    return ALL[name](**settings)
