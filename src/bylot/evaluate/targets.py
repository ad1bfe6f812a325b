"""Targets of an evaluation: policies that do not learn, with a distribution for every context.

Also parses them from the command line: uniform, now, set:ANN,BOB and the like.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bylot.distributions import ConstantSet, FixedSizeSets, IidSets, PanelDistribution
from bylot.errors import SavedFileError, TargetError
from bylot.evaluate.log import refuse_duplicate_keys
from bylot.numerics.conditional_poisson import restrict_logits
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.sampling import restrict_distribution
from bylot.optima import Optimum
from bylot.policies import POLICY_CLASSES, Policy
from bylot.problem import Problem
from bylot.problem.limits import float_from_real
from bylot.problem.validation import suggest_known_name
from bylot.router.router import Router

TARGET_SYNTAX = (
    "uniform, now, set:ANN,BOB, draws:WEIGHTS, sets:WEIGHTS or router:FILE, "
    "where WEIGHTS is ANN=0.5,BOB=0.25 or a JSON file"
)
GUARD_CAVEAT = (
    "this distribution is fixed and has no guard; the router itself adapts it and guards its "
    "limits, so it keeps limits that this distribution violates"
)

ContextRows = Mapping[str | None, Floats]
"""One row of numbers by context; the row of None is for all contexts."""


@dataclass(frozen=True, eq=False)
class EvaluationTarget:
    """A policy that does not learn.

    distribution: of panels in a context among the available experts; an empty mask means all
    caveats:      notes about its costs
    """

    name: str
    distribution: Callable[[str | None, Bools], PanelDistribution]
    caveats: tuple[str, ...] = ()


def can_be_target(policy: Policy) -> bool:
    """Whether a policy draws from a known distribution."""
    return policy.draws_iid or policy.draws_sets


def make_router_target(problem: Problem, router: Router, name: str = "now") -> EvaluationTarget:
    """The present distribution of a router with the same experts, without its guard."""
    if router.problem.experts != problem.experts:
        raise TargetError(
            f"target {name!r}: the router has other experts than the problem, or another order",
            remedy="give a router for the same experts",
        )

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        if context not in router.contexts:
            raise TargetError(
                f"target {name!r}: the router never saw {describe_context(context)}, so it has no "
                "distribution there",
                remedy="leave these entries out of the log, or use another target",
            )
        x, policy = router.contexts[context], router.policy
        found = policy.distribution(router.rule, router.preview_state(x, available), x, available)
        if found is None:
            known = [
                kind.name for kind in POLICY_CLASSES.values() if kind.draws_iid or kind.draws_sets
            ]
            raise TargetError(
                f"target {name!r}: {policy.name} does not draw from a known distribution; "
                f"{', '.join(known)} do",
                remedy="use uniform, set:..., sets:... or draws:...",
            )
        return found

    guard = getattr(router.rule, "guard", None)
    guarded = guard is not None and guard.on
    return EvaluationTarget(name, find_distribution, (GUARD_CAVEAT,) if guarded else ())


def make_uniform_target(problem: Problem) -> EvaluationTarget:
    """Any M different experts, all sets equally likely, as the policy `random`."""
    return make_set_target({None: np.zeros(problem.size)}, problem.draws, "uniform")


def make_iid_target(
    problem: Problem, weights: Mapping[str, object], name: str = "draws"
) -> EvaluationTarget:
    """M independent draws in proportion to the weights of experts; others have weight 0.

    Weights may also be given by context: {"chest pain": {"ann": 1, "bob": 2}, ...}.
    """
    rows = parse_weights_by_context(problem, weights, name)
    return make_draws_target({x: w / w.sum() for x, w in rows.items()}, problem.draws, name)


def make_optimum_target(
    problem: Problem, optimum: Optimum, name: str = "optimum"
) -> EvaluationTarget:
    """The best fixed policy found by `bylot.optimum`, with its contexts."""
    labels = [None] if optimum.contexts is None else map(str, optimum.contexts.tolist())
    q = dict(zip(labels, np.atleast_2d(optimum.policy), strict=True))
    return make_draws_target(q, problem.draws, name)


def make_draws_target(q: ContextRows, draws: int, name: str) -> EvaluationTarget:
    """Independent draws from q by context, renormalised over the available experts."""

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        row = select_context_row(q, context, name)
        if available.size and not row[available].any():
            raise make_unavailable_error(name, context)
        return IidSets(restrict_distribution(row, available), draws)

    return EvaluationTarget(name, find_distribution)


def make_fixed_size_target(
    problem: Problem, weights: Mapping[str, object], name: str = "sets"
) -> EvaluationTarget:
    """Exactly M different experts by the weights of experts, for all contexts or by context."""
    rows = parse_weights_by_context(problem, weights, name)
    for context, row in rows.items():
        if np.count_nonzero(row) < min(problem.draws, problem.size):
            raise TargetError(
                f"target {name!r}, {describe_context(context)}: {np.count_nonzero(row)} experts "
                f"have a weight, but {problem.draws} different ones are drawn",
                remedy="give weights to more experts, or use draws:",
            )
    with np.errstate(divide="ignore"):
        theta = {x: np.log(w / w.max()) for x, w in rows.items()}
    return make_set_target(theta, problem.draws, name)


def make_set_target(theta: ContextRows, draws: int, name: str) -> EvaluationTarget:
    """Exactly min(M, number available) experts, P(A) ~ prod_{i in A} e^{theta_i}."""

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        row = restrict_logits(select_context_row(theta, context, name), available)
        count = int(np.isfinite(row).sum())
        if count == 0:
            raise make_unavailable_error(name, context)
        return FixedSizeSets(row, min(draws, count))

    return EvaluationTarget(name, find_distribution)


def make_panel_target(problem: Problem, names: list[str], name: str = "set") -> EvaluationTarget:
    """The same panel in every round, or its available members."""
    if not names:
        raise TargetError(f"target {name!r} names no expert", remedy="name at least one")
    inside = np.zeros(problem.size, np.bool_)
    for expert in names:
        inside[find_expert_number(problem, expert, name)] = True

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        members = inside & available if available.size else inside
        if not members.any():
            raise make_unavailable_error(name, context)
        return ConstantSet(members)

    return EvaluationTarget(name, find_distribution)


def parse_weights_by_context(
    problem: Problem, weights: Mapping[str, object], name: str
) -> dict[str | None, Floats]:
    """Rows of weights by context; the key None is for all contexts."""
    nested = [isinstance(value, Mapping) for value in weights.values()]
    if not any(nested):
        return {None: parse_weight_row(problem, weights, name, None)}
    if not all(nested):
        raise TargetError(
            f"target {name!r} mixes weights by name with weights by context",
            remedy='give all by name, {"ann": 1}, or all by context, {"chest pain": {"ann": 1}}',
        )
    pairs = ((x, w) for x, w in weights.items() if isinstance(w, Mapping))
    return {x: parse_weight_row(problem, w, name, x) for x, w in pairs}


def parse_weight_row(
    problem: Problem, weights: Mapping[str, object], name: str, context: str | None
) -> Floats:
    """(K,) weights of experts, 0 for those not named, the largest 1."""
    row, where = np.zeros(problem.size), f"target {name!r}, {describe_context(context)}"
    for expert, weight in weights.items():
        value = float_from_real(weight)
        if value is None or not 0 <= value < 1e100:
            raise TargetError(
                f"{where}: invalid weight {weight!r} of {expert!r}", expected="a number >= 0"
            )
        row[find_expert_number(problem, expert, name)] = value
    if not row.max() > 1e-100:
        raise TargetError(f"{where}: no expert has a weight", remedy="give at least one above 0")
    return np.asarray(row / row.max())


def find_expert_number(problem: Problem, expert: str, name: str) -> int:
    """The position of an expert in the problem."""
    if expert not in problem.experts:
        remedy = suggest_known_name(expert, problem.experts, "experts")
        raise TargetError(f"target {name!r}: unknown expert {expert!r}", remedy=remedy)
    return problem.experts.index(expert)


def select_context_row(rows: Mapping[str | None, Floats], context: str | None, name: str) -> Floats:
    """The row of a context, or the one for all contexts."""
    if None in rows:
        return rows[None]
    if context not in rows:
        raise TargetError(
            f"target {name!r} has no weights for {describe_context(context)}, which is in the log",
            remedy="add weights for it",
        )
    return rows[context]


def describe_context(context: str | None) -> str:
    """A context for a message."""
    return "in any context" if context is None else f"context {context!r}"


def make_unavailable_error(name: str, context: str | None) -> TargetError:
    """The error for a round in which no expert of a target is available."""
    return TargetError(
        f"target {name!r}, {describe_context(context)}: none of its experts is available in some "
        "round of the log",
        remedy="give weights to more experts, or leave such entries out (--since T)",
    )


def parse_target(
    spec: str, problem: Problem, router: Router | None = None, gone: Collection[str] = ()
) -> EvaluationTarget:
    """A target of the command line; `now` is that of the router, `gone` are departed experts."""
    kind, _, rest = spec.partition(":")
    if spec == "uniform":
        return make_uniform_target(problem)
    if spec == "now":
        if router is None:
            raise TargetError(
                "target 'now' is the distribution of a saved router, and none is given; that of a "
                "served router is known to its server only",
                remedy="use --problem-from ROUTER.json, or the target router:ROUTER.json",
            )
        return make_router_target(problem, router)
    if rest and kind == "set":
        names = [name.strip() for name in rest.split(",")]
        check_names(names, problem, gone, spec)
        return make_panel_target(problem, names, spec)
    if rest and kind in ("draws", "sets"):
        weights = parse_weights(rest, spec)
        for name, given in weights.items():
            check_names([*given] if isinstance(given, Mapping) else [name], problem, gone, spec)
        make = make_iid_target if kind == "draws" else make_fixed_size_target
        return make(problem, weights, spec)
    if rest and kind == "router":
        try:
            return make_router_target(problem, Router.load(rest), spec)
        except SavedFileError as error:
            raise TargetError(f"target {spec!r}: {error}") from None
    raise TargetError("target", got=spec, expected=TARGET_SYNTAX)


def check_names(names: list[str], problem: Problem, gone: Collection[str], spec: str) -> None:
    """Refuse repeated names and experts that have left the pool."""
    for n, name in enumerate(names):
        if name in names[:n]:
            raise TargetError(f"target {spec!r} names {name!r} twice")
        if name in gone and name not in problem.experts:
            raise TargetError(
                f"target {spec!r}: {name!r} has left the pool", remedy="name experts of the pool"
            )


def parse_weights(text: str, spec: str) -> dict[str, Any]:
    """Weights by name, from a JSON file or from NAME=WEIGHT pairs."""
    if not Path(text).is_file() and "=" in text:
        try:
            pairs = [
                (one.split("=")[0].strip(), float(one.split("=", 1)[1])) for one in text.split(",")
            ]
            return refuse_duplicate_keys(pairs)
        except (ValueError, IndexError) as error:
            raise TargetError(
                f"target {spec!r}: invalid weights ({error})",
                remedy="write ANN=0.5,BOB=0.25; use a JSON file for names with commas or '='",
            ) from None
    try:
        given = json.loads(
            Path(text).read_text(encoding="utf-8-sig"), object_pairs_hook=refuse_duplicate_keys
        )
    except OSError as error:
        raise TargetError(
            f"target {spec!r}: cannot read {text} ({error.strerror})",
            remedy="give a JSON file, or weights as ANN=0.5,BOB=0.25",
        ) from None
    except (ValueError, RecursionError) as error:
        raise TargetError(f"target {spec!r}: {text} is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise TargetError(f"target {spec!r}: {text}", expected='an object {"ann": 0.5, ...}')
    return given
