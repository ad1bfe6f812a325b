"""Targets of an evaluation: policies that do not learn, with a distribution for every context.

Also parses them from the command line: uniform, now, set:ANN,BOB and the like.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bylot.distributions import FixedSizeSets, IidSets, PanelDistribution
from bylot.errors import SavedFileError, TargetError
from bylot.evaluate.log import refuse_duplicate_keys
from bylot.numerics.jit import Bools, Floats
from bylot.optima import IidOptimum
from bylot.policies import Policy
from bylot.policies.catalog import POLICY_CLASSES, is_installed
from bylot.problem import Problem
from bylot.problem.limit_input import float_from_real
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


@dataclass(frozen=True, eq=False)
class EvaluationTarget:
    """A policy that does not learn: a distribution for a context and a mask of available experts.

    An empty mask means all.
    """

    name: str
    distribution: Callable[[str | None, Bools], PanelDistribution]
    caveats: tuple[str, ...] = ()  # about its costs
    router: Router | None = None  # that learned it


def target_error(target: str, what: str, remedy: str | None = None) -> TargetError:
    return TargetError(f"target {target!r}: {what}", remedy=remedy)


def can_be_target(policy: Policy | type[Policy]) -> bool:
    """Whether a policy draws from a known distribution."""
    return policy.draws_iid or policy.draws_sets


def make_router_target(problem: Problem, router: Router, name: str = "now") -> EvaluationTarget:
    """The present distribution of a router with the same experts, without its guard."""
    if router.problem.experts != problem.experts:
        raise target_error(
            name,
            "the router has other experts than the problem, or another order",
            "give a router for the same experts",
        )

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        if context not in router.core.contexts:
            raise target_error(
                name,
                f"the router never saw a request {describe_context(context)}, so it has no "
                "distribution there",
                "leave these entries out of the log, or use another target",
            )
        state, view = router.core.preview_state(router.core.contexts[context], available)
        found = router.policy.distribution(router.core.rule, state, view)
        if found is None:
            known = [
                policy
                for policy in POLICY_CLASSES
                if is_installed(policy) and can_be_target(POLICY_CLASSES[policy])
            ]
            raise target_error(
                name,
                f"{router.policy.name} does not draw from a known distribution; "
                f"{', '.join(known)} do",
                "use uniform, set:..., sets:... or draws:...",
            )
        return found

    limits = router.core.book.tables
    caveats = (GUARD_CAVEAT,) if limits is not None and limits.rule.on else ()
    return EvaluationTarget(name, find_distribution, caveats, router)


def make_uniform_target(problem: Problem) -> EvaluationTarget:
    """Any M different experts, all sets equally likely, as the policy `random`."""
    return make_fixed_size_target(problem, dict.fromkeys(problem.experts, 1), "uniform")


def make_iid_target(
    problem: Problem, weights: Mapping[str, object], name: str = "draws"
) -> EvaluationTarget:
    """M independent draws in proportion to the weights of experts; others have weight 0.

    Weights may also be given by context: {"chest pain": {"ann": 1, "bob": 2}, ...}.
    """
    rows = parse_weights_by_context(problem, weights, name)
    return make_weighted_target(rows, name, lambda w: IidSets(w / w.sum(), problem.draws))


def make_optimum_target(
    problem: Problem, optimum: IidOptimum, name: str = "optimum"
) -> EvaluationTarget:
    """Return the best independent draws found by `bylot.iid_optimum`, with their contexts."""
    if not isinstance(optimum, IidOptimum):
        raise target_error(
            name,
            f"a {type(optimum).__name__} has no probabilities of independent draws",
            "give what bylot.iid_optimum returned",
        )
    labels = [None] if optimum.contexts is None else map(str, optimum.contexts.tolist())
    rows = dict(zip(labels, np.atleast_2d(optimum.policy), strict=True))
    return make_weighted_target(rows, name, lambda w: IidSets(w / w.sum(), problem.draws))


def make_fixed_size_target(
    problem: Problem, weights: Mapping[str, object], name: str = "sets"
) -> EvaluationTarget:
    """Exactly M different experts by the weights of experts, for all contexts or by context."""
    rows = parse_weights_by_context(problem, weights, name)
    for context, row in rows.items():
        count = np.count_nonzero(row)
        if count < min(problem.draws, problem.size):
            raise target_error(
                name,
                f"{describe_context(context)}, {count} experts have a weight, but "
                f"{problem.draws} different ones are drawn",
                "give weights to more experts, or use draws:",
            )
    return make_weighted_target(rows, name, lambda w: sets_from_weights(w, problem.draws))


def make_panel_target(problem: Problem, names: list[str], name: str = "set") -> EvaluationTarget:
    """The same panel in every round, or its available members."""
    if not names:
        raise target_error(name, "it names no expert", "name at least one")
    row = parse_weight_row(problem, dict.fromkeys(names, 1), name, None)
    return make_weighted_target({None: row}, name, lambda w: sets_from_weights(w, w.size))


def sets_from_weights(w: Floats, most: int) -> FixedSizeSets:
    """Sets of `most` experts, or of all that have a weight: P(A) ~ prod_{i in A} w_i."""
    with np.errstate(divide="ignore"):
        return FixedSizeSets(np.log(w), min(most, int(np.count_nonzero(w))))


def make_weighted_target(
    rows: Mapping[str | None, Floats], name: str, make: Callable[[Floats], PanelDistribution]
) -> EvaluationTarget:
    """The distribution that `make` makes of a context's weights of the available experts.

    rows: the weights by context; the row of None is for all contexts
    """

    def find_distribution(context: str | None, available: Bools) -> PanelDistribution:
        key = None if None in rows else context
        if key not in rows:
            raise target_error(
                name,
                f"it has no weights for context {context!r}, which is in the log",
                "add weights for it",
            )
        row = np.where(available, rows[key], 0.0) if available.size else rows[key]
        if not row.any():
            raise target_error(
                name,
                f"{describe_context(context)}, none of its experts is available in some round of "
                "the log",
                "give weights to more experts, or leave such entries out (--since T)",
            )
        return make(row)

    return EvaluationTarget(name, find_distribution)


def parse_weights_by_context(
    problem: Problem, weights: Mapping[str, object], name: str
) -> dict[str | None, Floats]:
    """Rows of weights by context; the key None is for all contexts."""
    nested = {x: w for x, w in weights.items() if isinstance(w, Mapping)}
    if not nested:
        return {None: parse_weight_row(problem, weights, name, None)}
    if len(nested) < len(weights):
        raise target_error(
            name,
            "it mixes weights by name with weights by context",
            'give all by name, {"ann": 1}, or all by context, {"chest pain": {"ann": 1}}',
        )
    return {x: parse_weight_row(problem, w, name, x) for x, w in nested.items()}


def parse_weight_row(
    problem: Problem, weights: Mapping[str, object], name: str, context: str | None
) -> Floats:
    """(K,) weights of experts, 0 for those not named, the largest 1."""
    row, where = np.zeros(problem.size), describe_context(context)
    for expert, weight in weights.items():
        value = float_from_real(weight)
        if value is None or not 0 <= value < 1e100:
            raise target_error(
                name, f"invalid weight {weight!r} of {expert!r} {where}: expected a number >= 0"
            )
        if expert not in problem.experts:
            raise target_error(
                name,
                f"unknown expert {expert!r}",
                suggest_known_name(expert, problem.experts, "experts"),
            )
        row[problem.experts.index(expert)] = value
    if not row.max() > 1e-100:
        raise target_error(name, f"no expert has a weight {where}", "give at least one above 0")
    return np.asarray(row / row.max())


def describe_context(context: str | None) -> str:
    return "in any context" if context is None else f"in context {context!r}"


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
                remedy="use --problem-from ROUTER.bylot, or the target router:ROUTER.bylot",
            )
        return make_router_target(problem, router)
    if rest and kind == "router":
        try:
            return make_router_target(problem, Router.load(rest), spec)
        except SavedFileError as error:
            raise target_error(spec, str(error)) from None
    if not rest or kind not in ("set", "draws", "sets"):
        raise TargetError("target", got=spec, expected=TARGET_SYNTAX)
    weights: dict[str, Any] = {}
    if kind == "set":
        names = [name.strip() for name in rest.split(",")]
        for n, name in enumerate(names):
            if name in names[:n]:
                raise target_error(spec, f"it names {name!r} twice")
    else:
        weights = parse_weights(rest, spec)
        rows = [w if isinstance(w, Mapping) else {name: w} for name, w in weights.items()]
        names = [name for row in rows for name in row]
    for name in names:
        if name in gone and name not in problem.experts:
            raise target_error(spec, f"{name!r} has left the pool", "name experts of the pool")
    if kind == "set":
        return make_panel_target(problem, names, spec)
    if kind == "draws":
        return make_iid_target(problem, weights, spec)
    return make_fixed_size_target(problem, weights, spec)


def parse_weights(text: str, spec: str) -> dict[str, Any]:
    """Weights by name, from a JSON file or from NAME=WEIGHT pairs."""
    is_inline = "=" in text and not Path(text).is_file()
    try:
        if is_inline:
            pairs = [pair.split("=", 1) for pair in text.split(",")]
            return refuse_duplicate_keys([(name.strip(), float(weight)) for name, weight in pairs])
        content = Path(text).read_text(encoding="utf-8-sig")
        given = json.loads(content, object_pairs_hook=refuse_duplicate_keys)
    except OSError as error:
        raise target_error(
            spec,
            f"cannot read {text} ({error.strerror})",
            "give a JSON file, or weights as ANN=0.5,BOB=0.25",
        ) from None
    except (ValueError, RecursionError) as error:
        raise target_error(
            spec,
            f"invalid weights ({error})" if is_inline else f"{text} is not JSON ({error})",
            "write ANN=0.5,BOB=0.25; use a JSON file for names with commas or '='",
        ) from None
    if not isinstance(given, dict):
        raise target_error(spec, f'{text}: expected an object {{"ann": 0.5, ...}}')
    return given
