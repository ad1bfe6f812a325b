"""The numbers of a run for machines: one row a group of cells."""

import math
from typing import Any

import polars as pl

from bylot.metrics import TOLERANCES
from bylot.plots.groups import Groups, Key, Run, spread, synthetic


def summary(cells: pl.DataFrame, run: Run, core_seconds: float | None = None) -> dict[str, Any]:
    """What `summary.json` holds; `seeds` is how many different ones the records have."""
    groups = Groups(cells)
    return {
        "data": data_name(run),
        "synthetic": synthetic(run),
        "digest": run.get("data", {}).get("digest"),
        "code": run.get("code"),
        "rounds": run.get("rounds"),
        "window": run.get("window"),
        "seeds": cells["seed"].n_unique(),
        "cells": len(cells),
        "core_seconds": core_seconds,
        "rows": [row(groups, key) for key in groups],
    }


def data_name(run: Run) -> str:
    """Name of the data; that of a made-up crowd always says so."""
    name = str(run.get("data", {}).get("name", "unknown"))
    return f"{name} (synthetic)" if synthetic(run) and "synthetic" not in name.lower() else name


def row(groups: Groups, key: Key) -> dict[str, Any]:
    """A group; the deviation over seeds (ddof = 1) is null if there is one seed only."""
    reward, outside = groups.values(key, "reward"), groups.values(key, "outside")
    return {
        **key._asdict(),
        "seeds": len(groups[key]),
        "reward_mean": average(groups, key, "reward"),
        "reward_std": float(spread(reward)) if reward.size > 1 else None,
        "regret_true_mean": average(groups, key, "regret_true"),
        "feasible": {
            f"{tolerance:g}": float((outside <= tolerance).mean()) if outside.size else None
            for tolerance in TOLERANCES
        },
        "r2_mean": average(groups, key, "r2"),
        "expert_mean": average(groups, key, "expert"),
        "workload_mean": average(groups, key, "workload"),
        "optimum_mean": average(groups, key, "optimum"),
        "uniform_mean": average(groups, key, "uniform"),
    }


def average(groups: Groups, key: Key, column: str) -> float | None:
    """Mean over seeds; null if there is no value."""
    values = groups.values(key, column)
    return float(values.mean()) if values.size else None


def plain(value: Any) -> Any:
    """The same with null for what JSON has no number for.

    >>> plain({"a": [1.0, math.inf]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
