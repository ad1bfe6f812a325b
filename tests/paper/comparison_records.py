"""Made-up records of all policies in all scenarios with a given loss per policy."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from bylot_paper.grid import (
    COMPARED_POLICIES,
    COMPARISON_EXPERIMENTS,
    OWN_POLICIES,
    Cell,
    list_cells,
)
from bylot_paper.records import RECORD_SCHEMA
from paper_records import RUN, make_common_columns

FIELDS = ("experiment", "environment", "level", "policy", "dimensions", "seed")
LOST = dict.fromkeys(COMPARED_POLICIES, 0.08) | {"distinct": 0.03, "tangent": 0.04, "greedy": -0.01}


def make_comparison_records(lost: Mapping[str, float] = LOST, seeds: int = 4, **run: Any) -> Any:
    """Records with the given loss of each policy, as of a run on the synthetic crowd alone.

    Policies of the paper break a limit in odd seeds if there are limits.
    """
    cells = [cell for name in COMPARISON_EXPERIMENTS for cell in list_cells(name, seeds)]
    rows = [
        make_comparison_row(cell, lost[cell.policy])
        for cell in cells
        if cell.environment != "synthetic"
    ]
    return SimpleNamespace(
        cells=pl.DataFrame(rows, schema=RECORD_SCHEMA).sort("cell"), run={**RUN, **run}
    )


def make_comparison_row(cell: Cell, lost: float) -> dict[str, Any]:
    """Make the record of one cell."""
    rng = np.random.default_rng([cell.seed, sum(map(ord, cell.id))])
    kept = cell.policy in OWN_POLICIES or cell.level == "none" or cell.seed % 2 == 0
    reward = 0.9 - lost + 0.001 * rng.normal()
    return make_common_columns(*(getattr(cell, field) for field in FIELDS)) | {
        "cell": cell.id,
        "period": cell.period,
        "reward": reward,
        "outside": 0.0 if kept else 0.1,
        "feasible": kept,
        "optimum": 0.88,
        "optimum_gap": 0.01,
        "uniform": 0.8,
        "regret_true": 0.88 - reward,
        "replaced": 0,
        "periods": 10_000 // cell.period if cell.period else None,
        "bad_periods": 0 if cell.period else None,
        "size": 300 if cell.environment == "K=300" else 50,
        "mixture": 0.9,
        "mixture_gap": 1e-12,
        "propensities": cell.policy in ("random", "omd", "strict", "tangent", "distinct"),
        "micros": 5.0,
    }
