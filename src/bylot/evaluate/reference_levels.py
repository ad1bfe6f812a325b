"""Reference levels of a log: what random panels and the best fixed mixture would have earned."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct

from bylot.distributions import FixedSizeSets, MixedSets
from bylot.errors import BylotError, InsufficientOverlap
from bylot.evaluate.estimators import DOUBLY_ROBUST
from bylot.evaluate.importance_weights import select_usable_rounds
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import evaluate_target
from bylot.evaluate.targets import EvaluationTarget, make_uniform_target
from bylot.numerics.jit import Bools
from bylot.optima.polytope import maximise_linear

MIN_PANEL_ROUNDS = 40  # in which a panel of the mixture was drawn
MIN_LEVEL_ROUNDS = 20.0  # effective ones: a router that has learned seldom draws other panels


class ReferenceLevel(Struct, frozen=True, kw_only=True):
    """An estimated mean reward with its 95 % interval, or the reason why there is none."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def estimate_reference_levels(
    log: DecisionLog, rewards: tuple[float, float]
) -> list[ReferenceLevel]:
    """Random panels in the whole log; the best mixture of its first half in its second half, so
    that no mixture is judged by the rewards that it was chosen for.
    """
    half = len(log.entries) // 2
    earlier, later = (
        DecisionLog(log.problem, log.entries[part], log.places[part], log.gone)
        for part in (slice(half), slice(half, None))
    )

    def estimate(
        name: str, log: DecisionLog, make: Callable[[], EvaluationTarget]
    ) -> ReferenceLevel:
        try:
            result = evaluate_target(log, make(), rewards=rewards, least=MIN_LEVEL_ROUNDS)
        except BylotError as error:
            return ReferenceLevel(name=name, reason=error.what)
        found = next(one for one in result.estimates if one.name == DOUBLY_ROBUST)
        return ReferenceLevel(name=name, value=found.value, **found.interval._asdict())

    return [
        estimate("random panels, limits ignored", log, partial(make_uniform_target, log.problem)),
        estimate(
            "best fixed mixture within the limits",
            later,
            partial(make_best_mixture_target, earlier),
        ),
    ]


def make_best_mixture_target(log: DecisionLog) -> EvaluationTarget:
    """The mixture of panels of the log, one for all contexts, with the highest estimated reward
    whose costs keep the limits.

    The reward of a panel is its mean over the rounds that drew it, weighted by 1 / propensity.
    """
    problem, drawn = log.problem, defaultdict(list)
    for n in select_usable_rounds(log)[1].tolist():
        drawn[tuple(sorted(log.members[n].tolist()))].append(log.entries[n])
    if not drawn:
        raise InsufficientOverlap("no decision has both a propensity and a reward")
    most = max(map(len, drawn))
    often = {
        panel: found
        for panel, found in drawn.items()
        if len(found) >= MIN_PANEL_ROUNDS and len(panel) == most and panel[-1] < problem.size
    }
    drawn_often = f"drawn {MIN_PANEL_ROUNDS} times in {len(log.entries):,} decisions"
    if not often:
        raise InsufficientOverlap(f"no panel was {drawn_often}")
    panels = np.array([*often], np.int64)
    values = [
        np.average(
            [entry.reward for entry in found],
            weights=np.exp([-entry.log_propensity for entry in found]),
        )
        for found in often.values()
    ]
    costs = problem.rows[:, panels].sum(axis=2)
    one = np.ones((1, len(panels)))
    chosen = maximise_linear(
        np.array(values),
        -problem.signs[:, None] * costs,
        -problem.signs * problem.bounds,
        one,
        one[0, :1],
        0 * one[0],
        one[0],
    )
    if chosen is None:
        raise InsufficientOverlap(
            f"no mixture of the panels that were {drawn_often} keeps the limits"
        )
    theta = np.full((len(panels), problem.size), -np.inf)
    np.put_along_axis(theta, panels, 0.0, axis=1)

    def find_distribution(context: str | None, available: Bools) -> MixedSets:
        can = chosen.x > 1e-9
        if available.size:
            can &= available[panels].all(axis=1)
        if not can.any():
            raise InsufficientOverlap("no panel of the mixture was available in some decisions")
        parts = [FixedSizeSets(row, most) for row in theta[can]]
        return MixedSets(parts, chosen.x[can] / chosen.x[can].sum())

    return EvaluationTarget("mixture", find_distribution)
