"""How all parts of a report show numbers, verdicts, figures and refused runs; summary.json."""

import tomllib
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.harness import seed_std
from bylot.metrics import LIMIT_TOLERANCES
from bylot.numerics.jit import Floats
from bylot.reports import Block, TableBlock, make_figure, make_table, render_table_markdown
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, is_synthetic, name_data
from bylot_paper.claims.judge import FAILS, HOLDS, UNKNOWN, JudgedClaim

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
"""Captions of figures and tables, and the notes of each part of the report."""
NO_VALUE = "–"
VERDICT_MARKS = {HOLDS: ("holds", "✓"), FAILS: ("fails", "✗"), UNKNOWN: ("unknown", "?")}
"""CSS class and sign of a verdict."""


class Verdicts(NamedTuple):
    """The block of a report that lists judged claims."""

    rows: Sequence[JudgedClaim]

    def to_html(self) -> str:
        articles = []
        for row in self.rows:
            kind, sign = VERDICT_MARKS[row.verdict]
            articles.append(
                f'<article id="{escape(row.id)}"><p><span class="verdict {kind}">{sign} '
                f"{escape(row.verdict)}</span>: {escape(row.claim)} <code>{escape(row.id)}</code>"
                f'</p><p class="measured">Measured: {escape(row.measured)}</p>'
                f'<p class="rule">Rule: {escape(row.rule)}</p></article>'
            )
        return "\n".join(articles)

    def to_markdown(self) -> str:
        head = ("verdict", "claim", "measured", "rule", "id")
        rows = [[getattr(row, name) for name in head] for row in self.rows]
        return render_table_markdown(head, rows, words=len(head))


def place_in_order(name: str, order: Collection[str]) -> int:
    """The place of a name in an order; behind all others if it is not in it."""
    return [*order, name].index(name)


def format_mean(values: Floats) -> str:
    """The mean; a dash if there are no values."""
    return f"{values.mean():.4f}" if values.size else NO_VALUE


def format_mean_std(values: Floats) -> str:
    """Mean ± standard deviation; the mean alone for a single seed."""
    return format_mean(values) + (f" ± {float(seed_std(values)):.4f}" if values.size > 1 else "")


def format_mean_error(values: Floats) -> str:
    """Mean ± standard error; the mean alone for a single seed.

    >>> import numpy as np
    >>> format_mean_error(np.array([0.1, 0.3]))
    '0.2000 ± 0.1000'
    """
    if values.size < 2:
        return format_mean(values)
    return f"{format_mean(values)} ± {float(seed_std(values)) / values.size**0.5:.4f}"


def format_kept(outside: Floats) -> str:
    """How many of all runs are within all limits."""
    return f"{int((outside <= 0).sum())}/{outside.size}" if outside.size else NO_VALUE


def fill_table(
    name: str, rows: Sequence[Sequence[str]], more: Sequence[str] = (), **values: str
) -> list[Block]:
    """A table of texts.toml, nothing without rows; `more` are columns that depend on records."""
    return [make_table(TEXTS["tables"][name], rows, more, **values)] if rows else []


def build_figure(name: str, paths: Sequence[Path], run: RunManifest) -> list[Block]:
    """A figure with its description and caption; nothing if it was not drawn."""
    mark = "SYNTHETIC. " if is_synthetic(run) else ""
    return [make_figure(TEXTS["figures"][name], paths, mark)] if paths else []


def count_claim_verdicts(rows: Sequence[JudgedClaim], what: str) -> str:
    counts = Counter(row.verdict for row in rows)
    return (
        f"Of {len(rows)} {what}, {counts[HOLDS]} hold, {counts[FAILS]} do not hold, "
        f"{counts[UNKNOWN]} cannot be tested."
    )


def tabulate_untested(caption: str, kind: str, rows: Sequence[JudgedClaim]) -> list[Block]:
    untested = [(row.id, row.measured) for row in rows if row.verdict == UNKNOWN]
    return [TableBlock(caption, (kind, "reason"), untested, words=2)] if untested else []


def tabulate_refusals(cells: pl.DataFrame) -> list[Block]:
    """The runs that a policy refused, with the first reason of each kind."""
    by = ["experiment", "policy", "level", "period"]
    refused = cells.filter(pl.col("refused").is_not_null()).sort("cell")
    kinds = refused.group_by(by).agg(pl.col("refused").first(), pl.len()).sort(by, nulls_last=False)
    rows = [
        (*names, reason, "" if period is None else f"{period:,}", str(runs))
        for *names, period, reason, runs in kinds.rows()
    ]
    return fill_table("refusals", rows)


def summarize_run(
    cells: pl.DataFrame, run: RunManifest, core_seconds: float | None = None
) -> dict[str, Any]:
    """The content of summary.json; `seeds` is the number of different seeds in the records."""
    groups = RecordGroups(cells)
    return {
        "data": name_data(run),
        "synthetic": is_synthetic(run),
        "digest": run.get("data", {}).get("digest"),
        **{name: run.get(name) for name in ("code", "rounds", "window")},
        "seeds": cells["seed"].n_unique(),
        "cells": len(cells),
        "core_seconds": core_seconds,
        "rows": [summarize_group(groups, key) for key in groups],
    }


def summarize_group(groups: RecordGroups, key: GroupKey) -> dict[str, Any]:
    """Means over seeds; the deviation (ddof = 1) is null for a single seed."""

    def mean(column: str) -> float | None:
        values = groups.read(key, column)
        return float(values.mean()) if values.size else None

    reward, outside = groups.read(key, "reward"), groups.read(key, "outside")
    return {
        **key._asdict(),
        "seeds": len(groups[key]),
        "reward_mean": mean("reward"),
        "reward_std": float(seed_std(reward)) if reward.size > 1 else None,
        "regret_true_mean": mean("regret_true"),
        "feasible": {
            f"{tolerance:g}": float((outside <= tolerance).mean()) if outside.size else None
            for tolerance in LIMIT_TOLERANCES
        },
        **{f"{x}_mean": mean(x) for x in ("r2", "expert", "workload", "optimum", "uniform")},
    }
