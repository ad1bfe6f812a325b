"""The tables of the contest, as text."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from bylot.experiments.verdict import REFERENCE, Choice
from bylot.kernels.compile import Floats
from bylot.plots.groups import spread
from bylot.plots.standing import SHOWN, Entry
from bylot.report.blocks import Table
from bylot.report.tables import NONE

Told = Callable[[Entry], str]
"""What a tile of a table says."""


def chosen(choices: Sequence[Choice]) -> Table:
    """What is taken for each class of problems."""
    rows = [
        (
            choice.problems,
            choice.policy or "nobody",
            scored(choice, choice.policy),
            ", ".join(f"{name} {scored(choice, name)}" for name in others(choice)) or NONE,
            remark(choice),
        )
        for choice in choices
    ]
    head = ("problems", "taken", "score", "other candidates", "remark")
    return Table("Verdict: mean score ± standard error", head, rows, words=len(head))


def others(choice: Choice) -> list[str]:
    """The candidates besides the one that is taken, the best of them first."""
    return [name for name in choice.scores if name != choice.policy]


def remark(choice: Choice) -> str:
    """What else there is to say of a choice."""
    notes = []
    if choice.before is not None:
        notes.append(f"tied with {choice.before}, which does not tell its chances")
    if choice.unsaid:
        notes.append(f"does not count: {', '.join(choice.unsaid)}")
    if choice.uneven:
        notes.append(f"other seeds than those of {REFERENCE}: {', '.join(choice.uneven)}")
    return "; ".join(notes) or NONE


def scored(choice: Choice, policy: str | None) -> str:
    """A score with its error; the measure has none."""
    if policy is None or policy not in choice.scores:
        return NONE
    one = choice.scores[policy]
    return "1 (the measure)" if policy == REFERENCE else f"{one.mean:.2f} ± {one.error:.2f}"


def standing(found: Sequence[Entry], choice: Choice, free: Choice) -> Table:
    """A row a policy: all worlds together. choice: where chances are told; free: where not."""
    rows = []
    for policy in present(found):
        mine = [one for one in found if one.line.policy == policy]
        whole = [one for one in mine if one.line.period is None]
        rows.append(
            (
                policy,
                f"no: {choice.out[policy]}" if policy in choice.out else "yes",
                "yes" if all(one.line.told for one in mine) else "no",
                scored(free, policy),
                f"{sum(one.line.kept for one in whole)}/{sum(one.line.runs for one in whole)}",
                f"{np.mean([pooled(one, 'micros').mean() for one in whole]):.1f}",
            )
        )
    head = (
        *("policy", "candidate for the default", "tells its chances", "score"),
        *("runs within all limits", "µs a round"),
    )
    return Table("All worlds together", head, rows, words=3)


def by_place(found: Sequence[Entry], caption: str, told: Told) -> Table:
    """A row a place, a column a policy."""
    policies = present(found)
    rows = {one.line.place: [NONE] * len(policies) for one in found}
    for one in found:
        rows[one.line.place][policies.index(one.line.policy)] = told(one)
    cells = [(place, *row) for place, row in rows.items()]
    return Table(caption, ("place", *policies), cells)


def present(found: Sequence[Entry]) -> list[str]:
    """The policies that were played, in their order."""
    played = {one.line.policy for one in found}
    return [policy for policy in SHOWN if policy in played]


def gap(one: Entry) -> str:
    """To the best mixture; marked where a limit was left."""
    mark = " ✗" if one.line.kept < one.line.runs or one.line.bad else ""
    return erring(np.array(list(one.line.gaps.values()))) + mark


def law_gap(one: Entry) -> str:
    """To the best multinomial law."""
    return erring(pooled(one, "regret_true"))


def reward(one: Entry) -> str:
    """What was earned."""
    return erring(pooled(one, "reward"))


def kept(one: Entry) -> str:
    """Runs within all limits."""
    return f"{one.line.kept}/{one.line.runs}"


def bad(one: Entry) -> str:
    """Periods outside a limit."""
    return f"{one.line.bad}/{int(pooled(one, 'periods').sum())}"


def micros(one: Entry) -> str:
    """Of CPU time a round."""
    return f"{pooled(one, 'micros').mean():.1f}" if one.line.gaps else NONE


def erring(values: Floats) -> str:
    """Mean and standard error.

    >>> erring(np.array([0.1, 0.3]))
    '0.2000 ± 0.1000'
    """
    if not values.size:
        return NONE
    if values.size < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {float(spread(values)) / np.sqrt(values.size):.4f}"


def pooled(one: Entry, column: str) -> Floats:
    """A number of every run that was played."""
    values: Floats = one.cells[column].drop_nulls().to_numpy().astype(float)
    return values


def yardsticks(found: Sequence[Entry]) -> Table:
    """What could be earned, and what is proved of it."""
    rows = []
    for place in dict.fromkeys(one.line.place for one in found):
        inside = pl.concat([one.cells for one in found if one.line.place == place])
        seeds = inside.unique("seed", keep="first").sort("seed")
        rows.append(
            (place, *(f"{seeds[name].to_numpy().mean():.4f}" for name in MEANS), worst(seeds))
        )
    head = (
        *("place", "best mixture of panels", "best multinomial law", "its gap to the ceiling"),
        *("equal shares", "largest gap of a mixture to its ceiling"),
    )
    return Table("Yardsticks: means over seeds, of rewards in [0, 1]", head, rows)


MEANS = ("mixture", "optimum", "optimum_gap", "uniform")


def worst(seeds: pl.DataFrame) -> str:
    """How far the proved ceiling is from the mixture that was found, at most."""
    return f"{float(np.max(seeds['mixture_gap'].to_numpy())):.1e}"
