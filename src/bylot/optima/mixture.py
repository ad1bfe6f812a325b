"""The best mixture of sets: what panels of different experts, drawn by lot, could earn.

Every law of such panels is a mixture of sets, so that this is the optimum of policies which draw
no expert twice and, where panels may have fewer members, of all policies whatever.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot.kernels.compile import Floats
from bylot.optima.best import PRECISION, agreeing, by_context
from bylot.optima.mixing import Mix, Mixing
from bylot.optima.panels import Coverage
from bylot.optima.result import Labels
from bylot.optima.stack import Stack
from bylot.problem import Problem

Panel = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Mixture:
    """The best expected reward per round of panels drawn by lot, and the lot that has it.

    value:    mean over rounds of sum_A P(A) r_t(A)
    panels:   for each context, panels and their chances, the likeliest first
    asked:    (K,), the chance that each expert is asked, or (X, K) with a row for each context
    gap:      no mixture under the limits has more than value + gap: 0 but for rounding where all
              sets could be listed, else also what the search may have missed and the proof gives
              away
    prices:   (d,), what a bound is worth: d value / d bound in the bound's own unit, so >= 0 for
              `at_most` and <= 0 for `at_least`; one of the possible values at a kink
    fewer:    might panels have fewer than M members?
    contexts: the labels of the contexts; None without contexts
    """

    value: float
    panels: tuple[tuple[tuple[Panel, float], ...], ...]
    asked: Floats
    gap: float
    prices: Floats
    fewer: bool = False
    contexts: Labels | None = None

    @property
    def ceiling(self) -> float:
        """value + gap, which no mixture under the limits exceeds."""
        return self.value + self.gap


def best_mixture(
    problem: Problem,
    values: ArrayLike | Stack,
    *,
    contexts: ArrayLike | None = None,
    aggregate: bool = False,
    fewer: bool = False,
) -> Mixture:
    """The best chances P_x(A) for sets A of min(M, K) different experts, in each context x:

    max of (1/T) sum_t sum_A P_{x_t}(A) r_t(A), with expected costs within the limits

    values:    (T, N, K) or (N, K), or a `Stack`, as for `optimum`
    contexts:  (T,) labels. A mixture per context, each under the limits
    aggregate: with contexts, one budget for all: only the mean cost over contexts is limited
    fewer:     sets of 1 to min(M, K) experts: no policy whatever earns more under the limits, on
               average over these rounds, unless it knows what a round will be worth

    Costs of a set are sums over its members, so limits are linear in P and this is a linear
    program, solved by columns: at the prices of the limits, sets that would do better are added
    until there are none. Up to 200,000 sets of a context are all looked at; among more, greedy
    search and swaps look for them, and `.gap` has a proof of what may have been missed.

    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [0, 1, 2]}, [at_most("usd", 1.5)], draws=2)
    >>> best = best_mixture(trio, [[0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    >>> round(best.value, 6), best.asked.round(6), best.prices.round(6)
    (2.0, array([1. , 0.5, 0.5]), array([2.]))
    """
    stack = agreeing(problem, values)
    labels, parts = by_context(stack, contexts)
    mixes = [mixing.best(problem) for mixing in mixings(problem, parts, aggregate, fewer)]
    panels = [told for mix in mixes for told in by_chance(problem, mix)]
    asked = np.array([asked_in(problem, told) for told in panels])
    return Mixture(
        value=sum(mix.value for mix in mixes),
        panels=tuple(panels),
        asked=asked if labels is not None else asked[0],
        gap=sum(mix.ceiling - mix.value for mix in mixes),
        prices=np.sum([mix.prices for mix in mixes], axis=0),
        fewer=fewer,
        contexts=labels,
    )


def mixings(
    problem: Problem, parts: tuple[Stack, ...], aggregate: bool, fewer: bool
) -> list[Mixing]:
    """All contexts under one budget, or each under the limits."""
    tolerance = PRECISION * sum(part.everyone() for part in parts) / len(parts)
    groups = [parts] if aggregate else [(part,) for part in parts]
    made = []
    for group in groups:
        shares = np.array([part.weights.sum() for part in group])
        covers = tuple(Coverage.of(part, problem.draws, fewer) for part in group)
        made.append(Mixing(covers, shares / shares.sum(), tolerance))
    return made


def by_chance(problem: Problem, mix: Mix) -> list[tuple[tuple[Panel, float], ...]]:
    """For each context, panels and their chances, the likeliest first."""
    made: list[dict[Panel, float]] = [{} for _ in range(int(mix.columns.context.max()) + 1)]
    for x, row, chance in zip(mix.columns.context, mix.columns.members, mix.chances, strict=True):
        if chance > 0.0:
            panel = tuple(problem.experts[i] for i in row if i < problem.size)
            made[x][panel] = made[x].get(panel, 0.0) + float(chance)
    return [tuple(sorted(one.items(), key=lambda pair: (-pair[1], pair[0]))) for one in made]


def asked_in(problem: Problem, panels: tuple[tuple[Panel, float], ...]) -> Floats:
    """(K,), the chance that each expert is in a panel."""
    place = {name: i for i, name in enumerate(problem.experts)}
    asked = np.zeros(problem.size)
    for panel, chance in panels:
        asked[[place[name] for name in panel]] += chance
    return asked
