"""Policies by name; each file below reads like its pseudo-code."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bylot.errors import PolicyError
from bylot.policies.dual import OCO, Adaptive, Anytime, Fixed
from bylot.policies.omd import Omd

Policy = Omd

POLICIES: Mapping[str, Policy] = {
    "omd": Omd(),
    "omd-plain": Omd.plain(),
}

__all__ = ["POLICIES", "Adaptive", "Anytime", "Fixed", "Omd", "Policy", "named", "read", "write"]


def named(policy: str | Policy) -> Policy:
    """The policy of this name, or the given settings as they are."""
    if isinstance(policy, Omd):
        return policy
    if not isinstance(policy, str) or policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise PolicyError(f"there is no policy {policy!r}; the ones there are: {known}")
    return POLICIES[policy]


def write(policy: Policy) -> dict[str, Any]:
    """Settings as plain data, for saved files."""
    kind = next(name for name, oco in OCO.items() if isinstance(policy.dual, oco))
    settings = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {"name": "omd", **settings, "dual": {"kind": kind, **policy.dual._asdict()}}


def read(data: Mapping[str, Any]) -> Policy:
    """Settings from plain data; the inverse of `write`."""
    settings = dict(data)
    name, dual = settings.pop("name"), settings.pop("dual")
    unknown = set(settings) - {field.name for field in fields(Omd)}
    if name != "omd" or unknown or dual["kind"] not in OCO:
        raise PolicyError(f"this bylot does not know the policy {dict(data)!r}; upgrade it")
    return Omd(dual=OCO[dual["kind"]](dual["step"]), **settings)
