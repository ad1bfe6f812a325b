"""The part of the report that says which feedback is worth what."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bylot.numerics.jit import Floats
from bylot.reports import Block, Bullets, Heading, Paragraph
from bylot_paper import grid
from bylot_paper.analysis import read_by_seed, read_column
from bylot_paper.default_rule import SeedEstimate, average_estimates, estimate_mean
from bylot_paper.report.formatting import (
    NO_VALUE,
    TEXTS,
    fill_table,
    format_mean_error,
    place_in_order,
)
from bylot_paper.run import FIRST_REQUESTS
from bylot_paper.scenarios import (
    HOSPITAL_SCENARIO,
    IGNORED,
    RANDOM,
    RECORDED_SCENARIO,
)

SCENARIO_LABELS = {
    HOSPITAL_SCENARIO: "hospital, by specialty",
    f"{HOSPITAL_SCENARIO}{IGNORED}": "hospital, contexts ignored",
    f"{HOSPITAL_SCENARIO}{RANDOM}": "hospital, random contexts",
    RECORDED_SCENARIO: "recorded, by category",
    f"{RECORDED_SCENARIO}{IGNORED}": "recorded, contexts ignored",
}
"""Scenarios in the order of tables; those of ASlib follow under their own names."""
KIND_LABELS = {"panel": "one score", "winner": "the winner", "members": "member scores"}
MANY_SEEDS = 2  # needed for a standard error

EntryKey = tuple[str, str, str]  # scenario, policy, kind of feedback
FeedbackEntries = Mapping[EntryKey, pl.DataFrame]
"""The records of the runs of each policy in each scenario with each kind of feedback."""


def collect_feedback_entries(cells: pl.DataFrame) -> FeedbackEntries:
    """All entries, by scenario, policy and feedback in the order of tables."""
    played = cells.filter(pl.col("refused").is_null()).sort("seed")
    parts: dict[Any, pl.DataFrame] = played.partition_by(
        ["environment", "policy", "level"], as_dict=True
    )

    def order(key: EntryKey) -> tuple[Any, ...]:
        scenario, policy, kind = key
        return place_in_order(scenario, SCENARIO_LABELS), scenario, *order_row((policy, kind))

    return {key: parts[key] for key in sorted(parts, key=order)}


def order_row(row: tuple[str, str]) -> tuple[int, str, int]:
    """The place of a policy with some feedback in tables."""
    policy, kind = row
    return place_in_order(policy, grid.FEEDBACK_POLICIES[::-1]), policy, [*KIND_LABELS].index(kind)


def name_scenario(scenario: str) -> str:
    return SCENARIO_LABELS.get(scenario, scenario)


def build_feedback_section(cells: pl.DataFrame) -> tuple[list[Block], dict[str, Any]]:
    """The answer and all tables; and the part of default.json that documents are made from."""
    entries = collect_feedback_entries(cells)
    answer = describe_worth(entries)
    blocks: list[Block] = [Heading("Which feedback is worth what"), Paragraph(answer)]
    blocks += tabulate_feedback(entries, "reward", "feedback")
    for count in FIRST_REQUESTS:
        blocks += tabulate_feedback(entries, f"reward_{count}", "feedback-first", f"{count:,}")
    blocks.append(Bullets(TEXTS["notes"]["feedback"]))
    return blocks, make_feedback_data(entries, answer)


def choose_lead_policy(entries: FeedbackEntries) -> str | None:
    """The first policy of the tables that was played with every kind of feedback."""
    for policy in dict.fromkeys(policy for _, policy, _ in entries):
        if {kind for _, one, kind in entries if one == policy} == {*KIND_LABELS}:
            return policy
    return None


def describe_worth(entries: FeedbackEntries) -> str:
    """What member scores, the winner and contexts are worth to the first policy of the tables."""
    policy = choose_lead_policy(entries)
    if policy is None:
        return "No policy was played with every kind of feedback."
    own = [s for s in dict.fromkeys(x for x, _, _ in entries) if not s.endswith("-contexts")]
    parts = []
    for kind in ("members", "winner"):
        whole, early = (
            format_gain(estimate_gain(entries, own, policy, kind, column))
            for column in ("reward", "reward_1000")
        )
        parts.append(f"{whole} per request with {KIND_LABELS[kind]} ({early} in the first 1,000)")
    sentences = [
        f"Compared with one score for the panel, {policy} earns {' and '.join(parts)}: means over "
        f"{len(own)} scenario{'s' if len(own) > 1 else ''} with rewards of 0 or 1.",
        *(describe_contexts(entries, scenario, policy) for scenario in own),
    ]
    return " ".join(filter(None, sentences))


def estimate_gain(
    entries: FeedbackEntries, scenarios: Sequence[str], policy: str, kind: str, column: str
) -> SeedEstimate | None:
    """The reward with some feedback minus that with one score, on the same seeds."""
    pairs = (((name, policy, kind), (name, policy, "panel")) for name in scenarios)
    gains = [estimate_difference(entries, *pair, column) for pair in pairs]
    known = [gain for gain in gains if gain is not None]
    return average_estimates(known) if known else None


def estimate_difference(
    entries: FeedbackEntries, one: EntryKey, other: EntryKey, column: str
) -> SeedEstimate | None:
    """The mean difference of two entries over the seeds of both; None if these are too few."""
    if one not in entries or other not in entries:
        return None
    mine, theirs = (read_by_seed(entries[key], column) for key in (one, other))
    both = {(one[0], seed): mine[seed] - theirs[seed] for seed in mine if seed in theirs}
    return estimate_mean(both) if len(both) >= MANY_SEEDS else None


def describe_contexts(entries: FeedbackEntries, scenario: str, policy: str) -> str:
    """What contexts are worth in a scenario that was also played without them."""
    parts = []
    for kind in ("panel", "members"):
        without = f"{scenario}{IGNORED}", policy, kind
        if gain := estimate_difference(entries, (scenario, policy, kind), without, "reward"):
            parts.append(f"{format_gain(gain)} with {KIND_LABELS[kind]}")
    if not parts:
        return ""
    return f"Contexts ({name_scenario(scenario)}) are worth {' and '.join(parts)}."


def format_gain(gain: SeedEstimate | None) -> str:
    return NO_VALUE if gain is None else f"{gain.value:+.4f} ± {gain.error:.4f}"


def tabulate_feedback(
    entries: FeedbackEntries, column: str, table: str, first: str = ""
) -> list[Block]:
    """One row per policy and feedback, one column per scenario, and rows of references."""
    scenarios = list(dict.fromkeys(scenario for scenario, _, _ in entries))
    rows = [
        (
            policy,
            KIND_LABELS[kind],
            *(format_entry(entries.get((name, policy, kind)), column, first) for name in scenarios),
        )
        for policy, kind in sorted({(policy, kind) for _, policy, kind in entries}, key=order_row)
    ]
    for label, reference in () if first else REFERENCE_COLUMNS.items():
        values = (read_reference(entries, scenario, reference) for scenario in scenarios)
        rows.append((label, "", *(f"{value:.4f}" for value in values)))
    return fill_table(table, rows if entries else [], [*map(name_scenario, scenarios)], first=first)


REFERENCE_COLUMNS = {
    "best panels by context": "mixture_by_context",
    "best fixed panels": "mixture",
}


def read_reference(entries: FeedbackEntries, scenario: str, column: str) -> float:
    cells = next(cells for (name, _, _), cells in entries.items() if name == scenario)
    return float(read_column(cells, column)[0])


def format_entry(cells: pl.DataFrame | None, column: str, relative: object) -> str:
    """Mean ± standard error, relative to the best fixed panels; marked if a limit was violated."""
    if cells is None:
        return NO_VALUE
    unit = read_column(cells, "mixture") if relative else 1.0
    mark = "" if cells["feasible"].all() else " ✗"
    return format_mean_error(read_column(cells, column) / unit) + mark


def make_feedback_data(entries: FeedbackEntries, answer: str) -> dict[str, Any]:
    """Means and standard errors, for documents that show some of them."""
    columns = ("reward", *(f"reward_{count}" for count in FIRST_REQUESTS))
    lines = [
        {
            "scenario": name_scenario(scenario),
            "policy": policy,
            "feedback": kind,
            "seeds": len(cells),
            "kept": int(cells["feasible"].sum()),
            **{column: measure_column(read_column(cells, column)) for column in columns},
            "best_fixed": read_reference(entries, scenario, "mixture"),
        }
        for (scenario, policy, kind), cells in entries.items()
    ]
    return {"answer": answer, "policy": choose_lead_policy(entries), "lines": lines}


def measure_column(values: Floats) -> dict[str, float | None]:
    """The mean, and its standard error if there are several seeds."""
    many = values.size >= MANY_SEEDS
    error = float(values.std(ddof=1) / values.size**0.5) if many else None
    return {"mean": float(values.mean()), "error": error}
