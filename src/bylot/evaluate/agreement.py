"""Apprenticeship: what a router would choose beside what an existing system chose.

Owns agreement and costs, which need no odds; it says nothing of rewards, which do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bylot.distributions import PanelDistribution
from bylot.evaluate.importance_weights import list_target_distributions
from bylot.evaluate.log import DecisionLog
from bylot.evaluate.result import compute_target_costs, note_departed_experts
from bylot.evaluate.targets import EvaluationTarget, list_target_caveats
from bylot.numerics.jit import Bools

AGREEMENT_CAVEAT = (
    "Agreement and costs are exact. Nothing is said of what the router's panels would have earned: "
    "without odds, whoever chose may have known something of the request that made both the panel "
    "and the reward what they were, and panels that were never chosen have no rewards. To learn "
    "that, draw some of the panels by lot and log their odds."
)


@dataclass(frozen=True)
class PanelAgreement:
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


def measure_agreement(log: DecisionLog, target: EvaluationTarget) -> PanelAgreement:
    """How a law agrees with the panels of a log, whoever chose them."""
    laws, at = list_target_distributions(log, target), log.located[1]
    known: dict[tuple[int, bytes], tuple[float, float, float]] = {}
    rows = []
    for n, members in enumerate(log.members):
        x, inside = int(at[n]), np.zeros(log.size, np.bool_)
        inside[members] = True
        key = (x, inside.tobytes())
        if key not in known:
            known[key] = measure_panel_agreement(laws[x], inside)
        rows.append(known[key])
    same, overlap, jaccard = np.array(rows).T
    return PanelAgreement(
        target=target.name,
        rounds=len(log.entries),
        same=float(same.mean()),
        overlap=float(overlap.mean()),
        jaccard=float(jaccard.mean()),
        never=int((same == 0).sum()),
        median=float(np.median(same)),
        costs=compute_target_costs(log, laws),
        notes=(*note_departed_experts(log), *list_target_caveats(target)),
    )


def measure_panel_agreement(law: PanelDistribution, inside: Bools) -> tuple[float, float, float]:
    """The chance of the same panel, the expected overlap and the expected Jaccard index, from the
    chances of j members of the chosen panel and l others.
    """
    chances, size = law.group_counts(inside), int(inside.sum())
    both, others = np.indices(chances.shape)
    jaccard = both / (size + others)
    same = float(np.exp(law.log_probability(np.flatnonzero(inside))))
    return same, float((chances * both).sum()) / size, float((chances * jaccard).sum())
