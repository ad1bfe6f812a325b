"""What is sent: the terms of a router, the forms of decisions and rewards."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from msgspec import UNSET, UnsetType

from bylot import codec, policies
from bylot.problem import Limit, Problem

Aggregate = Literal["earliest", "last", "sum"]
Form = dict[str, Any]


class Ask(NamedTuple):
    """A decision to be made, as `decide` takes it."""

    context: str | None = None
    available: Iterable[str] | None = None
    key: str | None = None
    defer: bool = False

    def form(self) -> Form:
        """With a key in any case: asked again after a lost answer, it is the same decision."""
        up = self.available
        return {
            "context": self.context,
            "available": up if up is None or isinstance(up, str) else list(up),
            "key": self.key or uuid4().hex,
            "defer": self.defer,
        }


class Scored(NamedTuple):
    """A reward, as `reward` takes it."""

    id: str
    value: float
    spend: Mapping[str, float] | None = None
    key: str | None = None

    def form(self) -> Form:
        """Without the id, which is where it goes."""
        spend = None if self.spend is None else dict(self.spend)
        return {"value": self.value, "spend": spend, "key": self.key}


def terms(
    problem: Problem,
    policy: str | policies.Policy | policies.Auto,
    rewards: tuple[float, float],
    others: Mapping[str, Any],
) -> Form:
    """The terms of a new router."""
    return {
        "problem": codec.write_problem(problem),
        "policy": policy if isinstance(policy, str) else settings(policy),
        "rewards": list(rewards),
        **others,
    }


def settings(policy: policies.Policy | policies.Auto) -> Form:
    """A policy with its settings."""
    plain = policies.write(policies.named(policy))
    return {"name": plain.pop("name"), "settings": plain}


def edit(limits: Sequence[Limit] | UnsetType, others: Mapping[str, Any]) -> Form:
    """A change of terms: what is left out stays."""
    told = {name: value for name, value in others.items() if value is not UNSET}
    if limits is not UNSET:
        told["limits"] = [codec.write_limit(limit) for limit in limits]
    return told
