"""How all parts of a report show numbers, verdicts, figures and refused runs."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from bylot.harness import seed_std
from bylot.numerics.jit import Floats
from bylot.reports.blocks import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Block,
    Figure,
    JudgedClaim,
    TableBlock,
    Verdicts,
)
from bylot_paper.analysis import RunManifest, is_synthetic

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
"""Captions of figures, and the notes of each part of the report."""
NO_VALUE = "–"
MEAN_AND_ERROR = "mean ± standard error over seeds"


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
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> list[Block]:
    """A table; nothing if no record fills it."""
    return [TableBlock(caption, head, rows, words)] if rows else []


def build_figure(name: str, paths: Sequence[Path], run: RunManifest) -> list[Block]:
    """A figure with its description and caption; nothing if it was not drawn."""
    if not paths:
        return []
    mark = "SYNTHETIC. " if is_synthetic(run) else ""
    texts = TEXTS["figures"][name]
    png, svg = paths
    return [Figure(png, svg, mark + texts["alt"], mark + texts["caption"])]


def count_verdicts(rows: Sequence[JudgedClaim], what: str) -> str:
    """How many claims hold, in a sentence."""
    counts = Counter(row.verdict for row in rows)
    fell = f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[UNKNOWN]} cannot be tested"
    return f"Of {len(rows)} {what}, {fell}."


def build_verdicts(rows: Sequence[JudgedClaim]) -> list[Block]:
    """The verdicts; nothing if none could be reached."""
    tested = [row for row in rows if row.verdict != UNKNOWN]
    return [Verdicts(tested)] if tested else []


def tabulate_untested(caption: str, kind: str, rows: Sequence[JudgedClaim]) -> list[Block]:
    """What could not be judged, with the reason."""
    untested = [(row.id, row.measured) for row in rows if row.verdict == UNKNOWN]
    return fill_table(caption, (kind, "reason"), untested, words=2)


def tabulate_refusals(cells: pl.DataFrame) -> list[Block]:
    """The runs that a policy refused, with the first reason of each kind."""
    by = ["experiment", "policy", "level", "period"]
    refused = cells.filter(pl.col("refused").is_not_null()).sort("cell")
    kinds = refused.group_by(by).agg(pl.col("refused").first(), pl.len()).sort(by, nulls_last=False)
    rows = [
        (*map(str, row[:3]), str(row[4]), "" if row[3] is None else f"{row[3]:,}", str(row[5]))
        for row in kinds.rows()
    ]
    head = ("experiment", "policy", "level", "reason (the first)", "period", "runs")
    return fill_table("Runs that a policy refused", head, rows, words=4)
