"""The numbers of a run for machines: one row a group of cells."""

from typing import Any

import polars as pl

from bylot.harness import seed_std
from bylot.metrics import LIMIT_TOLERANCES
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, is_synthetic


def summarise_run(
    cells: pl.DataFrame, run: RunManifest, core_seconds: float | None = None
) -> dict[str, Any]:
    """What `summarise_run.json` holds; `seeds` is how many different ones the records have."""
    groups = RecordGroups(cells)
    return {
        "data": name_data(run),
        "synthetic": is_synthetic(run),
        "digest": run.get("data", {}).get("digest"),
        "code": run.get("code"),
        "rounds": run.get("rounds"),
        "window": run.get("window"),
        "seeds": cells["seed"].n_unique(),
        "cells": len(cells),
        "core_seconds": core_seconds,
        "rows": [make_summary_row(groups, key) for key in groups],
    }


def name_data(run: RunManifest) -> str:
    """Name of the data; that of a made-up crowd always says so."""
    name = str(run.get("data", {}).get("name", "unknown"))
    return f"{name} (synthetic)" if is_synthetic(run) and "synthetic" not in name.lower() else name


def make_summary_row(groups: RecordGroups, key: GroupKey) -> dict[str, Any]:
    """A group; the deviation over seeds (ddof = 1) is null if there is one seed only."""
    reward, outside = groups.values(key, "reward"), groups.values(key, "outside")
    return {
        **key._asdict(),
        "seeds": len(groups[key]),
        "reward_mean": average_group(groups, key, "reward"),
        "reward_std": float(seed_std(reward)) if reward.size > 1 else None,
        "regret_true_mean": average_group(groups, key, "regret_true"),
        "feasible": {
            f"{tolerance:g}": float((outside <= tolerance).mean()) if outside.size else None
            for tolerance in LIMIT_TOLERANCES
        },
        "r2_mean": average_group(groups, key, "r2"),
        "expert_mean": average_group(groups, key, "expert"),
        "workload_mean": average_group(groups, key, "workload"),
        "optimum_mean": average_group(groups, key, "optimum"),
        "uniform_mean": average_group(groups, key, "uniform"),
    }


def average_group(groups: RecordGroups, key: GroupKey, column: str) -> float | None:
    """Mean over seeds; null if there is no value."""
    values = groups.values(key, column)
    return float(values.mean()) if values.size else None
