"""The part of the report that says which feedback is worth what."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.numerics.jit import Floats
from bylot.reports.blocks import Block, Bullets, Heading, Paragraph
from bylot_paper import grid
from bylot_paper.default_rule import SeedEstimate, average_estimates, estimate_mean
from bylot_paper.question_scenarios import (
    HOSPITAL_SCENARIO,
    IGNORED,
    RANDOM,
    RECORDED_SCENARIO,
)
from bylot_paper.report import formatting
from bylot_paper.report.formatting import NO_VALUE, fill_table, format_mean_error
from bylot_paper.run import FIRST_REQUESTS

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


class FeedbackEntry(NamedTuple):
    """The runs of one policy in one scenario with one kind of feedback."""

    scenario: str
    policy: str
    kind: str
    cells: pl.DataFrame

    def values(self, column: str) -> Floats:
        """One number of every run that was played."""
        return np.asarray(self.cells[column].drop_nulls().to_numpy(), float)

    def by_seed(self, column: str) -> dict[int, float]:
        return dict(zip(self.cells["seed"].to_list(), self.values(column).tolist(), strict=True))


EntryKey = tuple[str, str, str]  # scenario, policy, kind of feedback


def collect_feedback_entries(cells: pl.DataFrame) -> dict[EntryKey, FeedbackEntry]:
    """All entries, by scenario, policy and feedback in the order of tables."""
    some = cells.filter(pl.col("experiment") == grid.FEEDBACK_EXPERIMENT)
    played = some.filter(pl.col("refused").is_null()).sort("seed")
    parts = played.partition_by(["environment", "policy", "level"], as_dict=True)
    entries = [
        FeedbackEntry(str(scenario), str(policy), str(kind), part)
        for (scenario, policy, kind), part in parts.items()
    ]
    scenarios, policies = [*SCENARIO_LABELS], [*grid.FEEDBACK_POLICIES[::-1]]

    def order(entry: FeedbackEntry) -> tuple[Any, ...]:
        own = entry.scenario in scenarios
        place = (0, scenarios.index(entry.scenario), "") if own else (1, 0, entry.scenario)
        known = entry.policy in policies
        rank = policies.index(entry.policy) if known else len(policies)
        return *place, rank, entry.policy, [*KIND_LABELS].index(entry.kind)

    ordered = sorted(entries, key=order)
    return {(one.scenario, one.policy, one.kind): one for one in ordered}


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
    blocks += [Bullets(formatting.TEXTS["notes"]["feedback"])]
    return blocks, make_feedback_data(entries, answer)


def choose_lead_policy(entries: Mapping[EntryKey, FeedbackEntry]) -> str | None:
    """The first policy of the tables that was played with every kind of feedback."""
    for policy in dict.fromkeys(policy for _, policy, _ in entries):
        if {kind for _, one, kind in entries if one == policy} == {*KIND_LABELS}:
            return policy
    return None


def describe_worth(entries: Mapping[EntryKey, FeedbackEntry]) -> str:
    """What member scores, the winner and contexts are worth to the first policy of the tables."""
    policy = choose_lead_policy(entries)
    if policy is None:
        return "No policy was played with every kind of feedback."
    own = [s for s in dict.fromkeys(x for x, _, _ in entries) if not s.endswith("-contexts")]
    parts = []
    for kind in ("members", "winner"):
        columns = ("reward", "reward_1000")
        gains = [estimate_gain(entries, own, policy, kind, column) for column in columns]
        whole, early = (format_gain(gain) for gain in gains)
        parts.append(f"{whole} per request with {KIND_LABELS[kind]} ({early} in the first 1,000)")
    count = f"{len(own)} scenario{'s' if len(own) > 1 else ''}"
    said = f"Compared with one score for the panel, {policy} earns {' and '.join(parts)}"
    sentences = [f"{said}: means over {count} with rewards of 0 or 1."]
    sentences += [describe_contexts(entries, scenario, policy) for scenario in own]
    return " ".join(sentence for sentence in sentences if sentence)


def estimate_gain(
    entries: Mapping[EntryKey, FeedbackEntry],
    scenarios: Sequence[str],
    policy: str,
    kind: str,
    column: str,
) -> SeedEstimate | None:
    """The reward with some feedback minus that with one score, on the same seeds."""
    found = []
    for scenario in scenarios:
        one, other = (entries.get((scenario, policy, x)) for x in (kind, "panel"))
        found += [subtract_entries(one, other, column)] if one and other else []
    known = [gain for gain in found if gain is not None]
    return average_estimates(known) if known else None


def subtract_entries(one: FeedbackEntry, other: FeedbackEntry, column: str) -> SeedEstimate | None:
    """The mean difference of two entries over the seeds of both; None if these are too few."""
    mine, theirs = one.by_seed(column), other.by_seed(column)
    both = {(one.scenario, seed): mine[seed] - theirs[seed] for seed in mine if seed in theirs}
    return estimate_mean(both) if len(both) >= MANY_SEEDS else None


def describe_contexts(entries: Mapping[EntryKey, FeedbackEntry], scenario: str, policy: str) -> str:
    """What contexts are worth in a scenario that was also played without them."""
    parts = []
    for kind in ("panel", "members"):
        one = entries.get((scenario, policy, kind))
        other = entries.get((f"{scenario}{IGNORED}", policy, kind))
        gain = subtract_entries(one, other, "reward") if one and other else None
        parts += [f"{format_gain(gain)} with {KIND_LABELS[kind]}"] if gain else []
    if not parts:
        return ""
    return f"Contexts ({name_scenario(scenario)}) are worth {' and '.join(parts)}."


def format_gain(gain: SeedEstimate | None) -> str:
    return NO_VALUE if gain is None else f"{gain.value:+.4f} ± {gain.error:.4f}"


def tabulate_feedback(
    entries: Mapping[EntryKey, FeedbackEntry], column: str, table: str, first: str = ""
) -> list[Block]:
    """One row per policy and feedback, one column per scenario, and rows of references."""
    scenarios = list(dict.fromkeys(scenario for scenario, _, _ in entries))
    keys = dict.fromkeys((policy, kind) for _, policy, kind in entries)
    names = [*dict.fromkeys(policy for policy, _ in keys)]
    rows = []
    for policy, kind in sorted(keys, key=lambda x: (names.index(x[0]), [*KIND_LABELS].index(x[1]))):
        found = [entries.get((scenario, policy, kind)) for scenario in scenarios]
        shown = [NO_VALUE if one is None else format_entry(one, column, first) for one in found]
        rows.append((policy, KIND_LABELS[kind], *shown))
    for label, reference in () if first else REFERENCE_COLUMNS.items():
        values = [read_reference(entries, scenario, reference) for scenario in scenarios]
        rows.append((label, "", *(f"{value:.4f}" for value in values)))
    labels = [name_scenario(scenario) for scenario in scenarios]
    return fill_table(table, rows if entries else [], labels, first=first)


REFERENCE_COLUMNS = {
    "best panels by context": "mixture_by_context",
    "best fixed panels": "mixture",
}


def read_reference(entries: Mapping[EntryKey, FeedbackEntry], scenario: str, column: str) -> float:
    one = next(entry for key, entry in entries.items() if key[0] == scenario)
    return float(one.values(column)[0])


def format_entry(entry: FeedbackEntry, column: str, relative: object) -> str:
    """Mean ± standard error, relative to the best fixed panels; marked if a limit was violated."""
    unit = entry.values("mixture") if relative else 1.0
    mark = "" if entry.cells["feasible"].all() else " ✗"
    return format_mean_error(entry.values(column) / unit) + mark


def make_feedback_data(entries: Mapping[EntryKey, FeedbackEntry], answer: str) -> dict[str, Any]:
    """Means and standard errors, for documents that show some of them."""
    columns = ("reward", *(f"reward_{count}" for count in FIRST_REQUESTS))
    lines = [
        {
            "scenario": name_scenario(one.scenario),
            "policy": one.policy,
            "feedback": one.kind,
            "seeds": len(one.cells),
            "kept": int(one.cells["feasible"].sum()),
            **{column: measure_column(one.values(column)) for column in columns},
            "best_fixed": read_reference(entries, one.scenario, "mixture"),
        }
        for one in entries.values()
    ]
    return {"answer": answer, "policy": choose_lead_policy(entries), "lines": lines}


def measure_column(values: Floats) -> dict[str, float | None]:
    """The mean, and its standard error if there are several seeds."""
    many = values.size >= MANY_SEEDS
    error = float(values.std(ddof=1) / values.size**0.5) if many else None
    return {"mean": float(values.mean()), "error": error}
