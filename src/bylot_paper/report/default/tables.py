"""The tables of the contest, as text."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from bylot.harness import seed_std
from bylot.numerics.jit import Floats
from bylot.reports.blocks import TableBlock
from bylot_paper.analysis import POLICY_ORDER, ContestEntry
from bylot_paper.default_rule import REFERENCE_POLICY, DefaultChoice
from bylot_paper.report.paper_tables import NO_VALUE

FormatEntry = Callable[[ContestEntry], str]
"""What a tile of a table says."""


def tabulate_choices(choices: Sequence[DefaultChoice]) -> TableBlock:
    """What is taken for each class of problems."""
    rows = [
        (
            choice.problems,
            choice.policy or "nobody",
            format_score(choice, choice.policy),
            ", ".join(
                f"{name} {format_score(choice, name)}" for name in list_other_candidates(choice)
            )
            or NO_VALUE,
            make_remark(choice),
        )
        for choice in choices
    ]
    head = ("problems", "taken", "score", "other candidates", "remark")
    return TableBlock("Verdict: mean score ± standard error", head, rows, words=len(head))


def list_other_candidates(choice: DefaultChoice) -> list[str]:
    """The candidates besides the one that is taken, the best of them first."""
    return [name for name in choice.scores if name != choice.policy]


def make_remark(choice: DefaultChoice) -> str:
    """What else there is to say of a choice."""
    notes = []
    if choice.before is not None:
        notes.append(f"tied with {choice.before}, which does not tell its chances")
    if choice.unsaid:
        notes.append(f"does not count: {', '.join(choice.unsaid)}")
    if choice.uneven:
        notes.append(f"other seeds than those of {REFERENCE_POLICY}: {', '.join(choice.uneven)}")
    return "; ".join(notes) or NO_VALUE


def format_score(choice: DefaultChoice, policy: str | None) -> str:
    """A score with its error; the measure has none."""
    if policy is None or policy not in choice.scores:
        return NO_VALUE
    one = choice.scores[policy]
    return "1 (the measure)" if policy == REFERENCE_POLICY else f"{one.mean:.2f} ± {one.error:.2f}"


def tabulate_policies(
    found: Sequence[ContestEntry], choice: DefaultChoice, free: DefaultChoice
) -> TableBlock:
    """A row a policy: all worlds together. choice: where chances are told; free: where not."""
    rows = []
    for policy in list_policies_present(found):
        mine = [one for one in found if one.line.policy == policy]
        whole = [one for one in mine if one.line.period is None]
        rows.append(
            (
                policy,
                f"no: {choice.out[policy]}" if policy in choice.out else "yes",
                "yes" if all(one.line.told for one in mine) else "no",
                format_score(free, policy),
                f"{sum(one.line.kept for one in whole)}/{sum(one.line.runs for one in whole)}",
                f"{np.mean([entry_values(one, 'micros').mean() for one in whole]):.1f}",
            )
        )
    head = (
        *("policy", "candidate for the default", "tells its chances", "score"),
        *("runs within all limits", "µs a round"),
    )
    return TableBlock("All worlds together", head, rows, words=3)


def tabulate_cases(found: Sequence[ContestEntry], caption: str, told: FormatEntry) -> TableBlock:
    """A row a place, a column a policy."""
    policies = list_policies_present(found)
    rows = {one.line.place: [NO_VALUE] * len(policies) for one in found}
    for one in found:
        rows[one.line.place][policies.index(one.line.policy)] = told(one)
    cells = [(place, *row) for place, row in rows.items()]
    return TableBlock(caption, ("place", *policies), cells)


def list_policies_present(found: Sequence[ContestEntry]) -> list[str]:
    """The policies that were played, in their order."""
    played = {one.line.policy for one in found}
    return [policy for policy in POLICY_ORDER if policy in played]


def format_gap(one: ContestEntry) -> str:
    """To the best mixture; marked where a limit was left."""
    mark = " ✗" if one.line.kept < one.line.runs or one.line.bad else ""
    return format_entry_mean(np.array(list(one.line.gaps.values()))) + mark


def format_multinomial_gap(one: ContestEntry) -> str:
    """To the best multinomial law."""
    return format_entry_mean(entry_values(one, "regret_true"))


def format_reward(one: ContestEntry) -> str:
    """What was earned."""
    return format_entry_mean(entry_values(one, "reward"))


def format_kept(one: ContestEntry) -> str:
    """Runs within all limits."""
    return f"{one.line.kept}/{one.line.runs}"


def format_contest_bad_periods(one: ContestEntry) -> str:
    """Periods outside a limit."""
    return f"{one.line.bad}/{int(entry_values(one, 'periods').sum())}"


def format_round_time(one: ContestEntry) -> str:
    """Of CPU time a round."""
    return f"{entry_values(one, 'micros').mean():.1f}" if one.line.gaps else NO_VALUE


def format_entry_mean(values: Floats) -> str:
    """Mean and standard error.

    >>> format_entry_mean(np.array([0.1, 0.3]))
    '0.2000 ± 0.1000'
    """
    if not values.size:
        return NO_VALUE
    if values.size < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {float(seed_std(values)) / np.sqrt(values.size):.4f}"


def entry_values(one: ContestEntry, column: str) -> Floats:
    """A number of every run that was played."""
    values: Floats = one.cells[column].drop_nulls().to_numpy().astype(float)
    return values


def tabulate_references(found: Sequence[ContestEntry]) -> TableBlock:
    """What could be earned, and what is proved of it."""
    rows = []
    for place in dict.fromkeys(one.line.place for one in found):
        inside = pl.concat([one.cells for one in found if one.line.place == place])
        seeds = inside.unique("seed", keep="first").sort("seed")
        rows.append(
            (
                place,
                *(f"{seeds[name].to_numpy().mean():.4f}" for name in REFERENCE_MEANS),
                format_largest_gap(seeds),
            )
        )
    head = (
        *("place", "best mixture of panels", "best multinomial law", "its gap to the ceiling"),
        *("equal shares", "largest gap of a mixture to its ceiling"),
    )
    return TableBlock("Yardsticks: means over seeds, of rewards in [0, 1]", head, rows)


REFERENCE_MEANS = ("mixture", "optimum", "optimum_gap", "uniform")


def format_largest_gap(seeds: pl.DataFrame) -> str:
    """How far the proved ceiling is from the mixture that was found, at most."""
    return f"{float(np.max(seeds['mixture_gap'].to_numpy())):.1e}"
