"""Made-up records of the experiments beyond the paper, with good or bad results."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from bylot_paper.grid import GUARDED_POLICIES, Cell, list_cells
from bylot_paper.records import RECORD_SCHEMA
from paper_records import BOUNDS, RUN, make_common_columns

LOST = {"omd": 0.04, "ts-bwk": 0.03, "cbwk": 0.06, "strict": 0.02, "tangent": 0.004}
OPTIMUM = {"tight": 3.0, "medium": 3.0, "loose": 3.0, "stress": 2.6}


def make_beyond_records(good: bool = True, seeds: int = 4, **run: Any) -> Any:
    """Records of all experiments beyond the paper, with good or with bad results."""
    names = ("beyond", "ablation", "periods")
    rows = [make_beyond_row(cell, good) for name in names for cell in list_cells(name, seeds)]
    return SimpleNamespace(
        cells=pl.DataFrame(rows, schema=RECORD_SCHEMA).sort("cell"), run={**RUN, **run}
    )


def make_beyond_row(cell: Cell, good: bool) -> dict[str, Any]:
    """Make the record of one cell."""
    name, _, changes = cell.policy.partition(":")
    rng = np.random.default_rng([cell.seed, sum(map(ord, cell.id))])
    guarded = name in GUARDED_POLICIES
    lost = LOST.get(name, -0.02 if cell.level == "stress" else 0.003) + 0.001 * rng.normal()
    lost += 0.05 if guarded and not good else 0.0
    broken = not guarded or "guard" in changes or not good
    outside = 0.1 if broken and cell.seed % 2 else 0.0
    count = 20_000 // cell.period if cell.period else None
    best = OPTIMUM[cell.level]
    workload, expert = BOUNDS.get(cell.level, (0.8, 1.0))
    return make_common_columns(*(getattr(cell, field) for field in FIELDS)) | {
        "cell": cell.id,
        "period": cell.period,
        "reward": best - lost,
        "reward_late": best - lost,
        "workload": 0.5,
        "expert": 0.5,
        "workload_bound": workload,
        "expert_bound": expert,
        "outside": outside,
        "feasible": outside <= 0,
        "r2": outside,
        "optimum": best,
        "optimum_gap": 0.01 if cell.level == "stress" else 1e-11,
        "optimum_spread": 1e-15,
        "uniform": 0.96 * best,
        "regret_true": lost,
        "replaced": 5 if changes == "pace=None" else 0,
        "periods": count,
        "bad_periods": None if count is None else round(outside * count),
        **(make_curves(best, lost) if cell.experiment in ("beyond", "periods") else {}),
    }


FIELDS = ("experiment", "environment", "level", "policy", "dimensions", "seed")


def make_curves(best: float, lost: float) -> dict[str, Any]:
    """Curves whose regret falls to its final value."""
    t = np.arange(200, 10_001, 200)
    r1 = lost + 0.1 * np.exp(-t / 1_000)
    return {
        "curve_t": t.tolist(),
        "curve_reward": (best - r1).tolist(),
        "curve_workload": np.full(len(t), 0.5).tolist(),
        "curve_expert": np.full(len(t), 0.5).tolist(),
        "curve_r1_true": r1.tolist(),
        "curve_r2": np.zeros(len(t)).tolist(),
    }
