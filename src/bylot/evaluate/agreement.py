"""Agreement of a target with the panels that an existing system chose.

Owns agreement and costs, which need no propensities; rewards would need them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bylot.distributions import PanelDistribution
from bylot.evaluate.importance_weights import list_target_distributions
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import compute_target_costs, note_departed_experts
from bylot.evaluate.targets import EvaluationTarget
from bylot.numerics.jit import Bools

AGREEMENT_CAVEAT = (
    "Agreement and costs are exact. They say nothing about the rewards of the target's panels: "
    "without propensities, what the existing system knew about a request may explain both the "
    "panel and the reward, and panels that were never chosen have no rewards. To estimate rewards, "
    "draw some panels at random and log their propensities."
)


@dataclass(frozen=True)
class PanelAgreement:
    """A target compared with the panels that were chosen; means over rounds, exact.

    same:       probability to draw the chosen panel
    overlap:    share of the chosen panel's members that are drawn
    jaccard:    |both| / |either|
    impossible: rounds whose panel the target cannot draw
    median:     median probability of the chosen panel
    """

    target: str
    rounds: int
    same: float
    overlap: float
    jaccard: float
    impossible: int
    median: float
    costs: Mapping[str, float]
    notes: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "costs": dict(self.costs), "notes": list(self.notes)}


def measure_agreement(log: DecisionLog, target: EvaluationTarget) -> PanelAgreement:
    """Compare a target with the panels of a log, however those were chosen."""
    distributions, at = list_target_distributions(log, target), log.strata[1]
    known: dict[tuple[int, bytes], tuple[float, float, float]] = {}
    rows = []
    for n, members in enumerate(log.members):
        x, inside = int(at[n]), np.zeros(log.size, np.bool_)
        inside[members] = True
        key = (x, inside.tobytes())
        if key not in known:
            known[key] = measure_panel_agreement(distributions[x], inside)
        rows.append(known[key])
    same, overlap, jaccard = np.array(rows).T
    return PanelAgreement(
        target=target.name,
        rounds=len(log.entries),
        same=float(same.mean()),
        overlap=float(overlap.mean()),
        jaccard=float(jaccard.mean()),
        impossible=int((same == 0).sum()),
        median=float(np.median(same)),
        costs=compute_target_costs(log, distributions),
        notes=(*note_departed_experts(log), *target.caveats),
    )


def measure_panel_agreement(
    distribution: PanelDistribution, inside: Bools
) -> tuple[float, float, float]:
    """The probability of the same panel, the expected overlap and the expected Jaccard index."""
    counts, size = distribution.group_counts(inside), int(inside.sum())
    both, others = np.indices(counts.shape)
    jaccard = both / (size + others)
    same = float(np.exp(distribution.log_probability(np.flatnonzero(inside))))
    return same, float((counts * both).sum()) / size, float((counts * jaccard).sum())
