"""Estimate: a number made of means over seeds, with what each seed did to it.

Seeds are few and shared: the same ones are behind numerator and denominator, behind the places of
a world, and behind policies that are compared. Kept seed by seed, errors add up as they should.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A value, and by how much each independent draw of chance pulled it, to first order."""

    value: float
    pulls: Mapping[Any, float]

    @property
    def error(self) -> float:
        """Its standard error: pulls are independent, so it is the root of the sum of squares."""
        return math.sqrt(sum(pull * pull for pull in self.pulls.values()))


def mean(values: Mapping[Any, float]) -> Estimate:
    """pull_s = (x_s - mean) / sqrt(n (n - 1)), whose squares sum to the usual variance s^2 / n.

    >>> round(mean({0: 1.0, 1: 3.0}).error, 12)
    1.0
    """
    found = np.array(list(values.values()))
    pulls = (found - found.mean()) / math.sqrt(found.size * (found.size - 1))
    return Estimate(float(found.mean()), dict(zip(values, pulls.tolist(), strict=True)))


def total(terms: Iterable[tuple[float, Estimate]]) -> dict[Any, float]:
    """The pulls of sum_k a_k x_k: those of one seed meet before they are squared."""
    pulls: dict[Any, float] = {}
    for weight, term in terms:
        for seed, pull in term.pulls.items():
            pulls[seed] = pulls.get(seed, 0.0) + weight * pull
    return pulls


def average(parts: Iterable[Estimate]) -> Estimate:
    """The mean of several, each of them counting alike."""
    parts = list(parts)
    value = float(np.mean([part.value for part in parts]))
    return Estimate(value, total((1 / len(parts), part) for part in parts))


def ratio(top: Estimate, bottom: Estimate) -> Estimate:
    """R = x / y, by the delta method: dR = (dx - R dy) / y.

    >>> ratio(mean({0: 1.0, 1: 3.0}), mean({0: 2.0, 1: 6.0})).error  # half of it in every seed
    0.0
    """
    value = top.value / bottom.value
    return Estimate(value, total([(1 / bottom.value, top), (-value / bottom.value, bottom)]))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """one - other."""
    return Estimate(one.value - other.value, total([(1.0, one), (-1.0, other)]))
