"""Targets: what would have been played instead, in any context and among whoever is up.

Owns the policies that can be evaluated; the chances of their panels are the laws' business.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bylot.distributions import ConstantSet, FixedSizeSets, IidSets, MixedSets, PanelDistribution
from bylot.errors import SavedFileError, TargetError
from bylot.evaluate.log import refuse_duplicate_keys
from bylot.numerics.conditional_poisson import restrict_logits
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.sampling import restrict_distribution
from bylot.optima import Optimum
from bylot.policies import Policy
from bylot.policies.base import compute_distribution as law_now
from bylot.policies.distinct import Distinct, find_available_distributions
from bylot.policies.random_panels import Random
from bylot.problem import Problem
from bylot.problem.limits import float_from_real
from bylot.problem.validation import suggest_known_name
from bylot.router.router import Router

ANY_CONTEXT = "in any context"


class EvaluationTarget(Protocol):
    """A policy that does not learn: a law for every context."""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        ...

    def law(self, context: str | None, up: Bools) -> PanelDistribution:
        """What it draws from in this context among those up; an empty mask stands for all."""
        ...


@dataclass(frozen=True, eq=False)
class IidTarget:
    """M independent draws from fixed shares q, renormalised among those that are up."""

    q: Mapping[str | None, Floats]  # by context; None where there is none, or for all of them
    draws: int
    name: str = "draws"

    def law(self, context: str | None, up: Bools) -> PanelDistribution:
        """q on those up, over its sum."""
        q = select_context_row(self.q, context, self.name)
        if up.size and not q[up].any():
            raise make_unavailable_error(self.name, context)
        return IidSets(restrict_distribution(q, up), self.draws)


@dataclass(frozen=True, eq=False)
class FixedSizeTarget:
    """Exactly min(M, number up) different experts, P(A) ~ prod_{i in A} weight_i."""

    theta: Mapping[str | None, Floats]  # log weights by context, as above
    draws: int
    name: str = "sets"

    def law(self, context: str | None, up: Bools) -> PanelDistribution:
        """The same weights among those up."""
        theta = restrict_logits(select_context_row(self.theta, context, self.name), up)
        can = int(np.isfinite(theta).sum())
        if can == 0:
            raise make_unavailable_error(self.name, context)
        return FixedSizeSets(theta, min(self.draws, can))


@dataclass(frozen=True, eq=False)
class FixedPanelTarget:
    """One set every time, or those of it that are up."""

    inside: Bools
    name: str = "set"

    def law(self, context: str | None, up: Bools) -> PanelDistribution:
        """Whoever of the set is up."""
        there = self.inside & up if up.size else self.inside
        if not there.any():
            raise make_unavailable_error(self.name, context)
        return ConstantSet(there)


@dataclass(frozen=True, eq=False)
class RouterTarget:
    """The law that a router would draw its next panel from, held as it is; without its guard, which
    looks at the past.
    """

    router: Router
    name: str = "now"

    def law(self, context: str | None, up: Bools) -> PanelDistribution:
        """Of this context; one that the router never saw has none yet."""
        router, policy = self.router, self.router.policy
        if context not in router.contexts:
            raise TargetError(
                f"target {self.name!r}: the router never saw {describe_context(context)}, so it has learned no "
                "law there; leave these lines out of the log, or give a target of your own"
            )
        x = router.contexts[context]
        state = router.ahead(x, up)
        if isinstance(policy, Distinct):
            ours, mild, m = find_available_distributions(router.rule, state, x, up)
            parts = (
                FixedSizeSets(ours.theta.copy(), int(m)),
                FixedSizeSets(mild.theta.copy(), int(m)),
            )
            weights = np.array([1.0 - router.rule.eps, router.rule.eps])
            return MixedSets(parts, weights)
        if isinstance(policy, Random):
            return make_uniform_target(router.problem).law(context, up)
        if policy.multinomial:
            return IidSets(law_now(router.rule, state, x, up), router.problem.draws)
        raise TargetError(
            f"target {self.name!r}: {type(policy).__name__.lower()} does not draw from a law that "
            "can be told; only distinct, tangent, strict, omd and random do. Give a law of your "
            "own: uniform, set:..., sets:... or draws:..."
        )


def make_router_target(problem: Problem, router: Router, name: str = "now") -> RouterTarget:
    """The law of a router, which must be one for the same experts."""
    if router.problem.experts != problem.experts:
        raise TargetError(
            f"target {name!r}: this router has other experts than the problem, or in another "
            "order; give one that was made for the same experts"
        )
    return RouterTarget(router, name)


def can_be_target(policy: Policy) -> bool:
    """Does it draw from a law that can be told, so that it can be a target?"""
    return policy.multinomial or policy.whole


def list_target_caveats(target: EvaluationTarget) -> tuple[str, ...]:
    """What a reader of a target's costs must know."""
    guard = getattr(target.router.rule, "guard", None) if isinstance(target, RouterTarget) else None
    if guard is None or not guard.on:
        return ()
    return (
        "this law is held fixed and has no guard; the router itself goes on to pace its law and to "
        "guard its limits, and keeps those that this law is outside of",
    )


def make_uniform_target(problem: Problem) -> FixedSizeTarget:
    """Any M different experts, all sets alike: what the policy `random` does."""
    return FixedSizeTarget({None: np.zeros(problem.size)}, problem.draws, "uniform")


def make_iid_target(
    problem: Problem, shares: Mapping[str, object], name: str = "draws"
) -> IidTarget:
    """M independent draws in proportion to the shares of named experts; those not named have none.

    Shares may also be given by context: {"chest pain": {"ann": 1, "bob": 2}, ...}.
    """
    q = {x: w / w.sum() for x, w in parse_weights_by_context(problem, shares, name).items()}
    return IidTarget(q, problem.draws, name)


def make_fixed_size_target(
    problem: Problem, weights: Mapping[str, object], name: str = "sets"
) -> FixedSizeTarget:
    """Exactly M different experts by the weights of named ones, in any context or by context."""
    given = parse_weights_by_context(problem, weights, name)
    for context, row in given.items():
        if np.count_nonzero(row) < min(problem.draws, problem.size):
            raise TargetError(
                f"target {name!r}, {describe_context(context)}: {np.count_nonzero(row)} experts have a weight, "
                f"but {problem.draws} different ones are to be drawn; name more, or take 'draws:'"
            )
    with np.errstate(divide="ignore"):
        return FixedSizeTarget(
            {x: np.log(w / w.max()) for x, w in given.items()}, problem.draws, name
        )


def make_panel_target(problem: Problem, names: list[str], name: str = "set") -> FixedPanelTarget:
    """These experts, every time."""
    if not names:
        raise TargetError(f"target {name!r}: no expert is named; name those to ask every time")
    inside = np.zeros(problem.size, np.bool_)
    for one in names:
        inside[find_expert_number(problem, one, name)] = True
    return FixedPanelTarget(inside, name)


def make_optimum_target(problem: Problem, optimum: Optimum, name: str = "optimum") -> IidTarget:
    """The best fixed policy that `bylot.optimum` found; its contexts are called by their labels."""
    if optimum.contexts is None:
        return IidTarget({None: optimum.policy}, problem.draws, name)
    labels = [str(label) for label in optimum.contexts.tolist()]
    return IidTarget(dict(zip(labels, optimum.policy, strict=True)), problem.draws, name)


def parse_weights_by_context(
    problem: Problem, weights: Mapping[str, object], name: str
) -> dict[str | None, Floats]:
    """Rows of weights by context; under None if one row is for all."""
    nested = [isinstance(value, Mapping) for value in weights.values()]
    if not any(nested):
        return {None: parse_weight_row(problem, weights, name, None)}
    if not all(nested):
        raise TargetError(
            f"target {name!r}: some weights are numbers and some are given by context; "
            'give all by name, {"ann": 1}, or all by context, {"chest pain": {"ann": 1}}'
        )
    return {
        x: parse_weight_row(problem, w, name, x)
        for x, w in weights.items()
        if isinstance(w, Mapping)
    }


def parse_weight_row(
    problem: Problem, weights: Mapping[str, object], name: str, context: str | None
) -> Floats:
    """(K,) weights of named experts, 0 for the others."""
    given = np.zeros(problem.size)
    for one, weight in weights.items():
        value = float_from_real(weight)
        if value is None or not 0 <= value < 1e100:
            raise TargetError(
                f"target {name!r}, {describe_context(context)}: weight {weight!r} of {one!r} is no number of 0 "
                "or more; give one, or leave the expert out"
            )
        given[find_expert_number(problem, one, name)] = value
    if not given.max() > 1e-100:
        raise TargetError(
            f"target {name!r}, {describe_context(context)}: nobody has a weight; give at least one above 0"
        )
    return np.asarray(given / given.max())


def find_expert_number(problem: Problem, expert: str, name: str) -> int:
    """The place of an expert in the problem."""
    if expert not in problem.experts:
        remedy = suggest_known_name(expert, problem.experts, "experts")
        raise TargetError(f"target {name!r}: there is no expert {expert!r}; {remedy}")
    return problem.experts.index(expert)


def select_context_row(rows: Mapping[str | None, Floats], context: str | None, name: str) -> Floats:
    """The row of a context, or the one that is for all."""
    if None in rows:
        return rows[None]
    if context not in rows:
        raise TargetError(
            f"target {name!r} says nothing of {describe_context(context)}, which is in the log; give it "
            "weights there too"
        )
    return rows[context]


def describe_context(context: str | None) -> str:
    """A context for a message."""
    return ANY_CONTEXT if context is None else f"context {context!r}"


def make_unavailable_error(name: str, context: str | None) -> TargetError:
    """The error for a target of whom nobody is up."""
    return TargetError(
        f"target {name!r}, {describe_context(context)}: nobody it could ask is available in some round of the "
        "log; give weights to more experts, or leave such lines out (--since T, if they come first)"
    )


TARGET_SYNTAX = (
    "uniform, now, set:ANN,BOB, draws:WEIGHTS, sets:WEIGHTS or router:FILE, "
    "WEIGHTS being ANN=0.5,BOB=0.25 or a JSON file"
)


def parse_target(
    spec: str, problem: Problem, router: Router | None = None, gone: Collection[str] = ()
) -> EvaluationTarget:
    """The target that is meant, for a problem and, if there is one, the router that `now` is of.

    gone: experts that have left the problem, whom no target can ask
    """
    kind, _, rest = spec.partition(":")
    if spec == "uniform":
        return make_uniform_target(problem)
    if spec == "now":
        if router is None:
            raise TargetError(
                "target 'now' is the law of a saved router, and there is none: what a served "
                "router has learned is with its server; give --problem-from ROUTER.json, or the "
                "target router:ROUTER.json"
            )
        return make_router_target(problem, router)
    if rest and kind == "set":
        names = [name.strip() for name in rest.split(",")]
        check_experts_remain(names, problem, gone, spec)
        return make_panel_target(problem, check_names_differ(names, spec), spec)
    if rest and kind in ("draws", "sets"):
        given = parse_weights(rest, spec)
        check_experts_remain([*iterate_weighted_names(given)], problem, gone, spec)
        if kind == "draws":
            return make_iid_target(problem, given, spec)
        return make_fixed_size_target(problem, given, spec)
    if rest and kind == "router":
        return make_router_target(problem, load_target_router(rest, spec), spec)
    raise TargetError(f"there is no target {spec!r}; wanted {TARGET_SYNTAX}")


def check_experts_remain(
    names: list[str], problem: Problem, gone: Collection[str], spec: str
) -> None:
    """Refuse those that have left."""
    left = [name for name in names if name in gone and name not in problem.experts]
    if left:
        raise TargetError(
            f"target {spec!r}: {left[0]!r} has left the pool, so that nobody could ask it now; "
            "name experts that are still there"
        )


def iterate_weighted_names(weights: Mapping[str, Any]) -> Iterator[str]:
    """The experts of weights, by name or by context and name."""
    for name, given in weights.items():
        yield from given if isinstance(given, Mapping) else (name,)


def load_target_router(path: str, spec: str) -> Router:
    """The router of a file, with the target in the error if it cannot be read."""
    try:
        return Router.load(path)
    except SavedFileError as error:
        raise TargetError(f"target {spec!r}: {error}") from None


def parse_weights(text: str, spec: str) -> dict[str, Any]:
    """Weights by name, from a JSON file or from the words themselves."""
    if not Path(text).is_file() and "=" in text:
        pairs = [parse_weight_pair(one, spec) for one in text.split(",")]
        check_names_differ([name for name, _ in pairs], spec)
        return dict(pairs)
    try:
        given = json.loads(
            Path(text).read_text(encoding="utf-8-sig"), object_pairs_hook=refuse_duplicate_keys
        )
    except OSError as error:
        raise TargetError(
            f"target {spec!r}: {text} cannot be read ({error.strerror}); give a JSON file, or "
            "weights as ANN=0.5,BOB=0.25"
        ) from None
    except (ValueError, RecursionError) as error:
        raise TargetError(f"target {spec!r}: {text} is not JSON ({error}); correct it") from None
    if not isinstance(given, dict):
        raise TargetError(f'target {spec!r}: {text} holds no object; write {{"ann": 0.5, ...}}')
    return given


def parse_weight_pair(text: str, spec: str) -> tuple[str, float]:
    """A name and its weight."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise TargetError(
            f"target {spec!r}: {text!r} is no NAME=WEIGHT; write ANN=0.5,BOB=0.25, or give a "
            "JSON file if a name holds a comma or an equals sign"
        ) from None


def check_names_differ(names: list[str], spec: str) -> list[str]:
    """The names, if they are all different."""
    for n, name in enumerate(names):
        if name in names[:n]:
            raise TargetError(f"target {spec!r} names {name!r} twice; name each expert once")
    return names
