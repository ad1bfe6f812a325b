"""Apprenticeship: what a router would choose beside what an existing system chose.

Owns agreement and costs, which need no odds; it says nothing of rewards, which do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bylot.evaluation.laws import Law
from bylot.evaluation.log import Log
from bylot.evaluation.outcome import departed, expected_costs
from bylot.evaluation.targets import Target, caveats
from bylot.evaluation.weighing import laws_of
from bylot.kernels.compile import Bools

CAVEAT = (
    "Agreement and costs are exact. Nothing is said of what the router's panels would have earned: "
    "without odds, whoever chose may have known something of the request that made both the panel "
    "and the reward what they were, and panels that were never chosen have no rewards. To learn "
    "that, draw some of the panels by lot and log their odds."
)


@dataclass(frozen=True)
class Agreement:
    """One law beside the panels that were chosen; means over rounds, exact.

    same:    chance to draw just the panel that was chosen
    overlap: share of the chosen panel's members that would be drawn too
    jaccard: |both| / |either|
    never:   rounds whose panel the law could not draw at all
    median:  median chance of the chosen panel
    """

    target: str
    rounds: int
    same: float
    overlap: float
    jaccard: float
    never: int
    median: float
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "costs": dict(self.costs), "notes": list(self.notes)}


def compare(log: Log, target: Target) -> Agreement:
    """How a law agrees with the panels of a log, whoever chose them."""
    laws, at = laws_of(log, target), log.located[1]
    known: dict[tuple[int, bytes], tuple[float, float, float]] = {}
    rows = []
    for n, members in enumerate(log.members):
        x, inside = int(at[n]), np.zeros(log.size, np.bool_)
        inside[members] = True
        key = (x, inside.tobytes())
        if key not in known:
            known[key] = agreement(laws[x], inside)
        rows.append(known[key])
    same, overlap, jaccard = np.array(rows).T
    return Agreement(
        target=target.name,
        rounds=len(log.entries),
        same=float(same.mean()),
        overlap=float(overlap.mean()),
        jaccard=float(jaccard.mean()),
        never=int((same == 0).sum()),
        median=float(np.median(same)),
        costs=expected_costs(log, laws),
        notes=(*departed(log), *caveats(target)),
    )


def agreement(law: Law, inside: Bools) -> tuple[float, float, float]:
    """The chance of the same panel, the expected overlap and the expected Jaccard index, from the
    chances of j members of the chosen panel and l others.
    """
    chances, size = law.counts(inside), int(inside.sum())
    both, others = np.indices(chances.shape)
    jaccard = both / (size + others)
    same = float(np.exp(law.log_chance(np.flatnonzero(inside))))
    return same, float((chances * both).sum()) / size, float((chances * jaccard).sum())
