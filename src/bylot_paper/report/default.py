"""The part of the report that is about the default policy: the verdict, its rule and its table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.numerics.jit import Floats
from bylot.reports.blocks import Banner, Block, Bullets, Heading, Paragraph, TableBlock
from bylot_paper.analysis import POLICY_ORDER, ContestEntry, RunManifest, collect_entries
from bylot_paper.default_rule import (
    DEFAULT_RULE_TEXT,
    REFERENCE_POLICY,
    DefaultChoice,
    choose_defaults,
)
from bylot_paper.report.formatting import (
    MEAN_AND_ERROR,
    NO_VALUE,
    TEXTS,
    build_figure,
    format_mean_error,
    tabulate_refusals,
)


class JudgedContest(NamedTuple):
    """The entries of a run, and what the rule chooses from them."""

    entries: list[ContestEntry]
    choices: list[DefaultChoice]


def judge_contest(cells: pl.DataFrame, run: RunManifest) -> JudgedContest:
    """Apply the rule, once for everything that is reported of it."""
    entries = collect_entries(cells, run)
    return JudgedContest(entries, choose_defaults([one.line for one in entries]))


def build_default_section(
    judged: JudgedContest, cells: pl.DataFrame, run: RunManifest, figure: Sequence[Path]
) -> list[Block]:
    """The verdict, the rule and all tables, as far as the records go."""
    entries, choices = judged
    whole = [one for one in entries if one.line.period is None and one.line.gaps]
    spans = [one for one in entries if one.line.period is not None]
    blocks: list[Block] = [Heading("The default"), Paragraph(describe_outcome(choices))]
    if not any(one.line.scenario == "hospital" for one in entries):
        blocks.append(Banner("Without the hospital: its files were not given (--hospital)"))
    blocks += [tabulate_choices(choices), Heading("The rule", 3), Bullets(DEFAULT_RULE_TEXT)]
    blocks += [Heading("The table", 3), *build_figure("default", figure, run)]
    gap = f"Gap to the best mixture of panels: {MEAN_AND_ERROR}; ✗ violated a limit"
    if whole:
        blocks.append(tabulate_policies(entries, *choices[:2]))
        for caption, form in {
            gap: format_gap,
            f"Gap to the best multinomial distribution: {MEAN_AND_ERROR}": lambda one: (
                format_mean_error(list_values(one, "regret_true"))
            ),
            f"Reward: {MEAN_AND_ERROR}": lambda one: format_mean_error(list_values(one, "reward")),
            "Runs within all limits, with no tolerance": lambda one: (
                f"{one.line.kept}/{one.line.runs}"
            ),
            "Microseconds per round": lambda one: f"{list_values(one, 'micros').mean():.1f}",
        }.items():
            blocks.append(tabulate_entries(whole, caption, form))
        blocks.append(tabulate_references(whole))
    if spans:
        blocks.append(Heading("In periods", 3))
        blocks.append(tabulate_entries(spans, "Periods outside a limit", format_bad))
        blocks.append(tabulate_entries(spans, f"In periods. {gap}", format_gap))
    return [
        *blocks,
        *tabulate_refusals(cells),
        Heading("How it was done", 3),
        Bullets(TEXTS["notes"]["default"]),
    ]


def describe_outcome(choices: Sequence[DefaultChoice]) -> str:
    """The verdict in a sentence."""
    if not choices:
        return "There is nothing to choose a default from."
    first, *others = choices
    if first.policy is None:
        reasons = "; ".join(f"{policy}: {why}" for policy, why in first.excluded.items())
        return f"No policy can be the default by these records: {reasons}."
    scored = (
        f"{len(first.scores)} of {len(first.scores) + len(first.excluded)} policies are candidates"
    )
    if first.policy != REFERENCE_POLICY:
        loses = f"it loses {format_score(first, first.policy)} of what {REFERENCE_POLICY} loses"
    else:
        loses = "all scores are relative to its loss"
        for name in list_others(first)[:1]:
            loses += f"; the next candidate, {name}, loses {format_score(first, name)} of that"
    classes = "; ".join(f"{one.problems}: {one.policy or 'none'}" for one in others)
    return (
        f"The default is {first.policy} by the rule below: {scored}, and {loses}. By class of "
        f"problems: {classes}."
    )


def tabulate_choices(choices: Sequence[DefaultChoice]) -> Block:
    """The choice for each class of problems."""
    rows = [
        (
            choice.problems,
            choice.policy or "none",
            format_score(choice, choice.policy),
            ", ".join(f"{name} {format_score(choice, name)}" for name in list_others(choice))
            or NO_VALUE,
            make_remark(choice),
        )
        for choice in choices
    ]
    head = ("problems", "choice", "score", "other candidates", "remark")
    return TableBlock("Verdict: mean score ± standard error", head, rows, words=len(head))


def list_others(choice: DefaultChoice) -> list[str]:
    """The candidates that were not chosen, the best first."""
    return [name for name in choice.scores if name != choice.policy]


def make_remark(choice: DefaultChoice) -> str:
    """Ties, scenarios that do not count, and unequal seeds."""
    notes = []
    if choice.beaten is not None:
        notes.append(f"tied with {choice.beaten}, which does not record propensities")
    if choice.uncounted:
        notes.append(f"does not count: {', '.join(choice.uncounted)}")
    if choice.uneven:
        notes.append(f"other seeds than those of {REFERENCE_POLICY}: {', '.join(choice.uneven)}")
    return "; ".join(notes) or NO_VALUE


def format_score(choice: DefaultChoice, policy: str | None) -> str:
    """A score with its error; the reference has none."""
    if policy is None or policy not in choice.scores:
        return NO_VALUE
    score = choice.scores[policy]
    if policy == REFERENCE_POLICY:
        return "1 (the reference)"
    return f"{score.mean:.2f} ± {score.error:.2f}"


def tabulate_policies(
    entries: Sequence[ContestEntry], choice: DefaultChoice, free: DefaultChoice
) -> Block:
    """One row per policy. choice: where propensities are needed; free: where they are not."""
    rows = []
    for policy in list_policies(entries):
        mine = [one for one in entries if one.line.policy == policy]
        whole = [one for one in mine if one.line.period is None]
        times = [list_values(one, "micros").mean() for one in whole]
        rows.append(
            (
                policy,
                f"no: {choice.excluded[policy]}" if policy in choice.excluded else "yes",
                "yes" if all(one.line.propensities for one in mine) else "no",
                format_score(free, policy),
                f"{sum(one.line.kept for one in whole)}/{sum(one.line.runs for one in whole)}",
                f"{np.mean(times):.1f}",
            )
        )
    head = (
        *("policy", "candidate for the default", "records propensities", "score"),
        *("runs within all limits", "µs per round"),
    )
    return TableBlock("All scenarios together", head, rows, words=3)


def tabulate_entries(
    entries: Sequence[ContestEntry], caption: str, form: Callable[[ContestEntry], str]
) -> Block:
    """One row per place, one column per policy."""
    policies = list_policies(entries)
    rows = {one.line.place: [NO_VALUE] * len(policies) for one in entries}
    for one in entries:
        if one.line.gaps or one.line.period is not None:
            rows[one.line.place][policies.index(one.line.policy)] = form(one)
    return TableBlock(caption, ("place", *policies), [(name, *row) for name, row in rows.items()])


def list_policies(entries: Sequence[ContestEntry]) -> list[str]:
    """The policies in the records, in the order of tables."""
    found = {one.line.policy for one in entries}
    return [policy for policy in POLICY_ORDER if policy in found]


def format_gap(entry: ContestEntry) -> str:
    """The gap to the best mixture; marked where a limit was violated."""
    line = entry.line
    mark = " ✗" if line.kept < line.runs or line.bad_periods else ""
    return format_mean_error(np.array(list(line.gaps.values()))) + mark


def format_bad(entry: ContestEntry) -> str:
    """Periods outside a limit, of all."""
    return f"{entry.line.bad_periods}/{int(list_values(entry, 'periods').sum())}"


def list_values(entry: ContestEntry, column: str) -> Floats:
    """One number of every run that was played."""
    values: Floats = entry.cells[column].drop_nulls().to_numpy().astype(float)
    return values


def tabulate_references(entries: Sequence[ContestEntry]) -> Block:
    """What the references earn in each place, and how sure they are."""
    rows = []
    for name in dict.fromkeys(one.line.place for one in entries):
        cells = pl.concat([one.cells for one in entries if one.line.place == name])
        seeds = cells.unique("seed", keep="first").sort("seed")
        means = (seeds[column].to_numpy().mean() for column in REFERENCE_MEANS)
        worst = float(np.max(seeds["mixture_gap"].to_numpy()))
        rows.append((name, *(f"{mean:.4f}" for mean in means), f"{worst:.1e}"))
    head = (
        *("place", "best mixture of panels", "best multinomial distribution"),
        *("its gap to the bound", "equal shares", "largest gap of a mixture to its bound"),
    )
    return TableBlock("References: means over seeds, of rewards in [0, 1]", head, rows)


REFERENCE_MEANS = ("mixture", "optimum", "optimum_gap", "uniform")


def make_default_data(judged: JudgedContest) -> dict[str, Any]:
    """The content of default.json: the rule, the lines it was applied to, and its choices."""
    entries, choices = judged
    return {
        "rule": DEFAULT_RULE_TEXT,
        "outcome": describe_outcome(choices),
        "choices": [
            {**one._asdict(), "scores": {name: x._asdict() for name, x in one.scores.items()}}
            for one in choices
        ],
        "lines": [one.line._asdict() for one in entries],
    }
