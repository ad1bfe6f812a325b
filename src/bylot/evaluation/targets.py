"""Targets: what would have been played instead, in any context and among whoever is up.

Owns the policies that can be evaluated; the chances of their panels are the laws' business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bylot.errors import TargetError
from bylot.evaluation.laws import Always, Exactly, Iid, Law, Mixture
from bylot.kernels.compile import Bools, Floats
from bylot.kernels.draw import restrict
from bylot.kernels.poisson import restricted
from bylot.optima import Optimum
from bylot.policies import Policy
from bylot.policies.contract import law as law_now
from bylot.policies.distinct import Distinct, laws
from bylot.policies.uniform import Random
from bylot.problem import Problem
from bylot.problem.limits import real
from bylot.problem.reading import instead
from bylot.router import Router

ANYWHERE = "in any context"


class Target(Protocol):
    """A policy that does not learn: a law for every context."""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        ...

    def law(self, context: str | None, up: Bools) -> Law:
        """What it draws from in this context among those up; an empty mask stands for all."""
        ...


@dataclass(frozen=True, eq=False)
class Draws:
    """M independent draws from fixed shares q, renormalised among those that are up."""

    q: Mapping[str | None, Floats]  # by context; None where there is none, or for all of them
    draws: int
    name: str = "draws"

    def law(self, context: str | None, up: Bools) -> Law:
        """q on those up, over its sum."""
        q = line(self.q, context, self.name)
        if up.size and not q[up].any():
            raise nobody(self.name, context)
        return Iid(restrict(q, up), self.draws)


@dataclass(frozen=True, eq=False)
class Sets:
    """Exactly min(M, number up) different experts, P(A) ~ prod_{i in A} weight_i."""

    theta: Mapping[str | None, Floats]  # log weights by context, as above
    draws: int
    name: str = "sets"

    def law(self, context: str | None, up: Bools) -> Law:
        """The same weights among those up."""
        theta = restricted(line(self.theta, context, self.name), up)
        can = int(np.isfinite(theta).sum())
        if can == 0:
            raise nobody(self.name, context)
        return Exactly(theta, min(self.draws, can))


@dataclass(frozen=True, eq=False)
class Panel:
    """One set every time, or those of it that are up."""

    inside: Bools
    name: str = "set"

    def law(self, context: str | None, up: Bools) -> Law:
        """Whoever of the set is up."""
        there = self.inside & up if up.size else self.inside
        if not there.any():
            raise nobody(self.name, context)
        return Always(there)


@dataclass(frozen=True, eq=False)
class Now:
    """The law that a router would draw its next panel from, held as it is; without its guard, which
    looks at the past.
    """

    router: Router
    name: str = "now"

    def law(self, context: str | None, up: Bools) -> Law:
        """Of this context; one that the router never saw has none yet."""
        router, policy = self.router, self.router.policy
        if context not in router.contexts:
            raise TargetError(
                f"target {self.name!r}: the router never saw {told(context)}, so it has learned no "
                "law there; leave these lines out of the log, or give a target of your own"
            )
        x = router.contexts[context]
        state = router.ahead(x, up)
        if isinstance(policy, Distinct):
            ours, mild, m = laws(router.rule, state, x, up)
            parts = Exactly(ours.theta.copy(), int(m)), Exactly(mild.theta.copy(), int(m))
            return Mixture(*parts, router.rule.eps)
        if isinstance(policy, Random):
            return uniform(router.problem).law(context, up)
        if policy.multinomial:
            return Iid(law_now(router.rule, state, x, up), router.problem.draws)
        raise TargetError(
            f"target {self.name!r}: {type(policy).__name__.lower()} does not draw from a law that "
            "can be told; only distinct, tangent, strict, omd and random do. Give a law of your "
            "own: uniform, set:..., sets:... or draws:..."
        )


def now(problem: Problem, router: Router, name: str = "now") -> Now:
    """The law of a router, which must be one for the same experts."""
    if router.problem.experts != problem.experts:
        raise TargetError(
            f"target {name!r}: this router has other experts than the problem, or in another "
            "order; give one that was made for the same experts"
        )
    return Now(router, name)


def lawful(policy: Policy) -> bool:
    """Does it draw from a law that can be told, so that it can be a target?"""
    return policy.multinomial or policy.whole


def caveats(target: Target) -> tuple[str, ...]:
    """What a reader of a target's costs must know."""
    guard = getattr(target.router.rule, "guard", None) if isinstance(target, Now) else None
    if guard is None or not guard.on:
        return ()
    return (
        "this law is held fixed and has no guard; the router itself goes on to pace its law and to "
        "guard its limits, and keeps those that this law is outside of",
    )


def uniform(problem: Problem) -> Sets:
    """Any M different experts, all sets alike: what the policy `random` does."""
    return Sets({None: np.zeros(problem.size)}, problem.draws, "uniform")


def draws(problem: Problem, shares: Mapping[str, object], name: str = "draws") -> Draws:
    """M independent draws in proportion to the shares of named experts; those not named have none.

    Shares may also be given by context: {"chest pain": {"ann": 1, "bob": 2}, ...}.
    """
    q = {x: w / w.sum() for x, w in by_context(problem, shares, name).items()}
    return Draws(q, problem.draws, name)


def sets(problem: Problem, weights: Mapping[str, object], name: str = "sets") -> Sets:
    """Exactly M different experts by the weights of named ones, in any context or by context."""
    given = by_context(problem, weights, name)
    for context, row in given.items():
        if np.count_nonzero(row) < min(problem.draws, problem.size):
            raise TargetError(
                f"target {name!r}, {told(context)}: {np.count_nonzero(row)} experts have a weight, "
                f"but {problem.draws} different ones are to be drawn; name more, or take 'draws:'"
            )
    with np.errstate(divide="ignore"):
        return Sets({x: np.log(w / w.max()) for x, w in given.items()}, problem.draws, name)


def panel(problem: Problem, names: list[str], name: str = "set") -> Panel:
    """These experts, every time."""
    if not names:
        raise TargetError(f"target {name!r}: no expert is named; name those to ask every time")
    inside = np.zeros(problem.size, np.bool_)
    for one in names:
        inside[number(problem, one, name)] = True
    return Panel(inside, name)


def best(problem: Problem, optimum: Optimum, name: str = "optimum") -> Draws:
    """The best fixed policy that `bylot.optimum` found; its contexts are called by their labels."""
    if optimum.contexts is None:
        return Draws({None: optimum.policy}, problem.draws, name)
    labels = [str(label) for label in optimum.contexts.tolist()]
    return Draws(dict(zip(labels, optimum.policy, strict=True)), problem.draws, name)


def by_context(
    problem: Problem, weights: Mapping[str, object], name: str
) -> dict[str | None, Floats]:
    """Rows of weights by context; under None if one row is for all."""
    nested = [isinstance(value, Mapping) for value in weights.values()]
    if not any(nested):
        return {None: row(problem, weights, name, None)}
    if not all(nested):
        raise TargetError(
            f"target {name!r}: some weights are numbers and some are given by context; "
            'give all by name, {"ann": 1}, or all by context, {"chest pain": {"ann": 1}}'
        )
    return {x: row(problem, w, name, x) for x, w in weights.items() if isinstance(w, Mapping)}


def row(problem: Problem, weights: Mapping[str, object], name: str, context: str | None) -> Floats:
    """(K,) weights of named experts, 0 for the others."""
    given = np.zeros(problem.size)
    for one, weight in weights.items():
        value = real(weight)
        if value is None or not 0 <= value < 1e100:
            raise TargetError(
                f"target {name!r}, {told(context)}: weight {weight!r} of {one!r} is no number of 0 "
                "or more; give one, or leave the expert out"
            )
        given[number(problem, one, name)] = value
    if not given.max() > 1e-100:
        raise TargetError(
            f"target {name!r}, {told(context)}: nobody has a weight; give at least one above 0"
        )
    return np.asarray(given / given.max())


def number(problem: Problem, expert: str, name: str) -> int:
    """The place of an expert in the problem."""
    if expert not in problem.experts:
        remedy = instead(expert, problem.experts, "experts")
        raise TargetError(f"target {name!r}: there is no expert {expert!r}; {remedy}")
    return problem.experts.index(expert)


def line(rows: Mapping[str | None, Floats], context: str | None, name: str) -> Floats:
    """The row of a context, or the one that is for all."""
    if None in rows:
        return rows[None]
    if context not in rows:
        raise TargetError(
            f"target {name!r} says nothing of {told(context)}, which is in the log; give it "
            "weights there too"
        )
    return rows[context]


def told(context: str | None) -> str:
    """A context for a message."""
    return ANYWHERE if context is None else f"context {context!r}"


def nobody(name: str, context: str | None) -> TargetError:
    """The error for a target of whom nobody is up."""
    return TargetError(
        f"target {name!r}, {told(context)}: nobody it could ask is available in some round of the "
        "log; give weights to more experts, or leave such lines out (--since T, if they come first)"
    )
