"""What the report says of the default: the verdict, its rule, and the table that it rests on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.reports.blocks import Banner, Block, Bullets, Figure, Heading, Paragraph
from bylot_paper.analysis import ContestEntry, RunManifest, collect_entries, is_synthetic
from bylot_paper.default_rule import (
    DEFAULT_RULE_TEXT,
    REFERENCE_POLICY,
    DefaultChoice,
    choose_defaults,
)
from bylot_paper.report.beyond.section import tabulate_refusals
from bylot_paper.report.default import tables

CONTEST_ALT = "What every policy loses in every world, and which policies left a limit"
CONTEST_CAPTION = (
    f"The reward of the best mixture of panels less that of the policy, in thousandths: less is "
    f"better. Blue loses less than {REFERENCE_POLICY} in the same place, orange more; grey left a limit "
    f"in some run, so that what it earned is not comparable, and it may not be the default."
)
CONTEST_NOTES = [
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


class JudgedContest(NamedTuple):
    """The table of a run, and what the rule makes of it."""

    entries: list[ContestEntry]
    choices: list[DefaultChoice]


def judge_contest(cells: pl.DataFrame, run: RunManifest) -> JudgedContest:
    """The rule, applied once for all that is said of it."""
    found = collect_entries(cells, run)
    return JudgedContest(found, choose_defaults([one.line for one in found]))


def build_default_section(
    judged: JudgedContest, cells: pl.DataFrame, run: RunManifest, drawn: Sequence[Path]
) -> list[Block]:
    """The whole part, as far as its records go."""
    found, choices = judged
    whole = [one for one in found if one.line.period is None and one.line.gaps]
    spans = [one for one in found if one.line.period is not None]
    blocks: list[Block] = [Heading("The default"), Paragraph(describe_outcome(choices))]
    if not any(one.line.world == "hospital" for one in found):
        blocks.append(Banner("The hospital was left out, as its files were not given (--hospital)"))
    blocks += [tables.tabulate_choices(choices), Heading("The rule", 3), Bullets(DEFAULT_RULE_TEXT)]
    blocks.append(Heading("The table", 3))
    blocks += build_contest_figure(drawn, run)
    if whole:
        blocks += [tables.tabulate_policies(found, *choices[:2]), *build_case_tables(whole)]
    if spans:
        blocks += [Heading("In periods", 3), *build_period_tables(spans)]
    refused = tabulate_refusals(cells)
    blocks += [refused] if refused else []
    return [*blocks, Heading("How it was done", 3), Bullets(CONTEST_NOTES)]


def describe_outcome(choices: Sequence[DefaultChoice]) -> str:
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
        f"The default is {first.policy} by the rule below: {kept}, and {describe_margin(first)}. By class "
        f"of problems: {'; '.join(classes)}."
    )


def describe_margin(choice: DefaultChoice) -> str:
    """What the one that is taken loses, or the next one if it is the measure itself."""
    if choice.policy != REFERENCE_POLICY:
        return f"it loses {tables.format_score(choice, choice.policy)} of what {REFERENCE_POLICY} loses"
    after = [
        f"{one}, loses {tables.format_score(choice, one)} of that"
        for one in tables.list_other_candidates(choice)
    ]
    following = f"; the next candidate, {after[0]}" if after else ""
    return f"what it loses is the measure of all scores{following}"


def build_contest_figure(drawn: Sequence[Path], run: RunManifest) -> list[Block]:
    """The figure, if there is one."""
    if not drawn:
        return []
    png, svg = drawn
    mark = "SYNTHETIC. " if is_synthetic(run) else ""
    return [Figure(png, svg, mark + CONTEST_ALT, mark + CONTEST_CAPTION)]


def build_case_tables(whole: Sequence[ContestEntry]) -> list[Block]:
    """Everything that was measured in the places with a known end."""
    error = "mean ± standard error over seeds"
    return [
        tables.tabulate_cases(
            whole, f"Gap to the best mixture of panels: {error}; ✗ left a limit", tables.format_gap
        ),
        tables.tabulate_cases(
            whole, f"Gap to the best multinomial law: {error}", tables.format_multinomial_gap
        ),
        tables.tabulate_cases(whole, f"Reward: {error}", tables.format_reward),
        tables.tabulate_cases(
            whole, "Runs within all limits, with no tolerance", tables.format_kept
        ),
        tables.tabulate_cases(whole, "Microseconds a round", tables.format_round_time),
        tables.tabulate_references(whole),
    ]


def build_period_tables(spans: Sequence[ContestEntry]) -> list[Block]:
    """All policies in periods."""
    return [
        tables.tabulate_cases(
            spans, "Periods that left a limit", tables.format_contest_bad_periods
        ),
        tables.tabulate_cases(
            spans,
            "Gap to the best mixture of panels in periods: mean ± standard error over seeds; "
            "✗ left a limit",
            tables.format_gap,
        ),
    ]


def make_default_data(judged: JudgedContest) -> dict[str, Any]:
    """What `default.json` holds: the rule, the lines it was applied to, and what came of it."""
    found, choices = judged
    lines = [one.line for one in found]
    return {
        "rule": list(DEFAULT_RULE_TEXT),
        "outcome": describe_outcome(choices),
        "choices": [choice_to_data(choice) for choice in choices],
        "lines": [{**line._asdict(), "gaps": dict(line.gaps)} for line in lines],
    }


def choice_to_data(choice: DefaultChoice) -> Mapping[str, Any]:
    """A choice as plain data."""
    scores = {policy: one._asdict() for policy, one in choice.scores.items()}
    lists = {"unsaid": list(choice.unsaid), "uneven": list(choice.uneven)}
    return {**choice._asdict(), "scores": scores, **lists}
