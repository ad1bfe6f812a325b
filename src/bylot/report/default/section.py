"""What the report says of the default: the verdict, its rule, and the table that it rests on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.experiments.verdict import REFERENCE, RULE, Choice, verdict
from bylot.plots.groups import Run, synthetic
from bylot.plots.standing import Entry, entries
from bylot.report.beyond.section import refusals
from bylot.report.blocks import Banner, Block, Bullets, Figure, Heading, Text
from bylot.report.default import tables

ALT = "What every policy loses in every world, and which policies left a limit"
CAPTION = (
    f"The reward of the best mixture of panels less that of the policy, in thousandths: less is "
    f"better. Blue loses less than {REFERENCE} in the same place, orange more; grey left a limit "
    f"in some run, so that what it earned is not comparable, and it may not be the default."
)
READING = [
    "The gap is to the best mixture of panels of exactly M different experts under the same "
    "limits in hindsight, whose proved ceiling is in the table of "
    "yardsticks; beside it stands the best law of M independent draws under the limits' exact "
    "expectation, which a policy that draws no expert twice can exceed. Rewards lie in [0, 1] in "
    "all worlds. Where a world holds more than 1.5 million values, every so many-th round of it is "
    "what the yardsticks are computed on.",
    "The crowd is played at the paper's four levels and at our stress, in both environments, as "
    "in the other experiments. hospital: 39 language models, 3 a visit of 8 questions, a budget, a "
    "cap on large models, a minimum share of 0.12 for each of 12 labs; its yardsticks are those of "
    "the expected visit. synthetic: the made-up crowd that stands in for TREC's, unless it is the "
    "crowd that is played anyway.",
    "crowd: the 50 made-up workers of bylot demo, under a budget, a cap on the busiest and a "
    "share for novices; late: the same, one reward in ten never told and the others up to 200 "
    "rounds late; re-dealt: the same, but after every fifth of the play (2,000 rounds of 10,000) "
    "half of the workers, drawn afresh, are dealt each other's skills, and the yardsticks know "
    "when and how; K=300: 300 such workers, 5 a request.",
    "specialists: 40 experts, each good at 2 of 12 things and bad at the rest, 4 a request: what "
    "two of them earn together hangs on which two they are, which no model of single experts has.",
    "pass-fail: 20 experts who each pass a request or fail it, 3 a request, and the reward is 1 if "
    "one of them passes, else 0; most panels succeed, so that the best is hard to tell. It and the "
    "specialists have a budget of 0.7 of M average experts, and a cap on the dearest quarter.",
    "All policies are told the horizon, except in periods, where nobody is. Settings are the "
    "paper's for its policies, converted to rewards in [0, 1], and the one default for ours. "
    "In periods all policies are played too, on the crowd where limits bind and in the hospital; "
    "panel, distinct and tangent mind them, and the play of the others is looked at in pieces.",
    "A microsecond is one of CPU time of one core, in one thread of this run, preparation and "
    "values included; it is the one number here that another run would not repeat.",
]


class Judged(NamedTuple):
    """The table of a run, and what the rule makes of it."""

    entries: list[Entry]
    choices: list[Choice]


def judge(cells: pl.DataFrame, run: Run) -> Judged:
    """The rule, applied once for all that is said of it."""
    found = entries(cells, run)
    return Judged(found, verdict([one.line for one in found]))


def section(judged: Judged, cells: pl.DataFrame, run: Run, drawn: Sequence[Path]) -> list[Block]:
    """The whole part, as far as its records go."""
    found, choices = judged
    whole = [one for one in found if one.line.period is None and one.line.gaps]
    spans = [one for one in found if one.line.period is not None]
    blocks: list[Block] = [Heading("The default"), Text(outcome(choices))]
    if not any(one.line.world == "hospital" for one in found):
        blocks.append(Banner("The hospital was left out, as its files were not given (--hospital)"))
    blocks += [tables.chosen(choices), Heading("The rule", 3), Bullets(RULE)]
    blocks.append(Heading("The table", 3))
    blocks += figure(drawn, run)
    if whole:
        blocks += [tables.standing(found, *choices[:2]), *by_place(whole)]
    if spans:
        blocks += [Heading("In periods", 3), *in_periods(spans)]
    refused = refusals(cells)
    blocks += [refused] if refused else []
    return [*blocks, Heading("How it was done", 3), Bullets(READING)]


def outcome(choices: Sequence[Choice]) -> str:
    """The verdict in a sentence."""
    if not choices:
        return "There is nothing to choose a default from."
    first, *others = choices
    if first.policy is None:
        whys = "; ".join(f"{policy}: {why}" for policy, why in first.out.items())
        return f"No policy can be the default by these records: {whys}."
    kept = f"of {len(first.scores) + len(first.out)} policies {len(first.scores)} are candidates"
    classes = [f"{one.problems}: {one.policy or 'nobody'}" for one in others]
    return (
        f"The default is {first.policy} by the rule below: {kept}, and {margin(first)}. By class "
        f"of problems: {'; '.join(classes)}."
    )


def margin(choice: Choice) -> str:
    """What the one that is taken loses, or the next one if it is the measure itself."""
    if choice.policy != REFERENCE:
        return f"it loses {tables.scored(choice, choice.policy)} of what {REFERENCE} loses"
    after = [f"{one}, loses {tables.scored(choice, one)} of that" for one in tables.others(choice)]
    following = f"; the next candidate, {after[0]}" if after else ""
    return f"what it loses is the measure of all scores{following}"


def figure(drawn: Sequence[Path], run: Run) -> list[Block]:
    """The figure, if there is one."""
    if not drawn:
        return []
    png, svg = drawn
    mark = "SYNTHETIC. " if synthetic(run) else ""
    return [Figure(png, svg, mark + ALT, mark + CAPTION)]


def by_place(whole: Sequence[Entry]) -> list[Block]:
    """Everything that was measured in the places with a known end."""
    error = "mean ± standard error over seeds"
    return [
        tables.by_place(
            whole, f"Gap to the best mixture of panels: {error}; ✗ left a limit", tables.gap
        ),
        tables.by_place(whole, f"Gap to the best multinomial law: {error}", tables.law_gap),
        tables.by_place(whole, f"Reward: {error}", tables.reward),
        tables.by_place(whole, "Runs within all limits, with no tolerance", tables.kept),
        tables.by_place(whole, "Microseconds a round", tables.micros),
        tables.yardsticks(whole),
    ]


def in_periods(spans: Sequence[Entry]) -> list[Block]:
    """All policies in periods."""
    return [
        tables.by_place(spans, "Periods that left a limit", tables.bad),
        tables.by_place(
            spans,
            "Gap to the best mixture of panels in periods: mean ± standard error over seeds; "
            "✗ left a limit",
            tables.gap,
        ),
    ]


def numbers(judged: Judged) -> dict[str, Any]:
    """What `default.json` holds: the rule, the lines it was applied to, and what came of it."""
    found, choices = judged
    lines = [one.line for one in found]
    return {
        "rule": list(RULE),
        "outcome": outcome(choices),
        "choices": [read(choice) for choice in choices],
        "lines": [{**line._asdict(), "gaps": dict(line.gaps)} for line in lines],
    }


def read(choice: Choice) -> Mapping[str, Any]:
    """A choice as plain data."""
    scores = {policy: one._asdict() for policy, one in choice.scores.items()}
    lists = {"unsaid": list(choice.unsaid), "uneven": list(choice.uneven)}
    return {**choice._asdict(), "scores": scores, **lists}
