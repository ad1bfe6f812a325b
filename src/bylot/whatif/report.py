"""What the report of a what-if run says, in which order."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bylot._text import format_percent, join_words
from bylot.reports.blocks import Banner, Block, Bullets, Figure, Heading, Paragraph, TableBlock
from bylot.whatif.figures import (
    MAX_EXPERT_ROWS,
    MAX_LIMIT_PANELS,
    has_several_periods,
    sweep_bounds,
)
from bylot.whatif.plan import DISTRIBUTION_KINDS, WhatifPlan, describe_policy
from bylot.whatif.references import MissingReference, Reference
from bylot.whatif.results import PolicyResult, WhatifResults

REFERENCE_LABELS = {
    "panels": "best lot of full panels, all different, that keeps the limits",
    "exact": "best law of independent draws that keeps the limits",
    "surrogate": "best law of independent draws under the paper's stricter stand-in",
    "most": "best lot of panels, full or not: no policy that keeps the limits earns more",
    "set": "best single panel, asked every time",
    "equal": "all experts equally often, by lot",
    "free-panels": "best full panels if nothing were limited",
    "free-draws": "best law of independent draws if nothing were limited",
}
REFERENCE_COLUMNS = {"most": "any policy", "set": "best panel", "equal": "equal shares"}
PRICE_VERDICTS = {
    "agrees": "yes",
    "kink": "a kink: it differs by side",
    "edge": "one side only",
    "differs": "no",
}


def whatif_title(found: WhatifResults) -> str:
    """Of the whole report."""
    mark = "MADE-UP WORLD: " if found.setup.world.made_up else ""
    path = found.setup.file.path.resolve()
    return f"{mark}What if {path.parent.name}/{path.name} went live?"


def build_whatif_report(
    found: WhatifResults, sentences: Sequence[str], paths: Mapping[str, list[Path]]
) -> list[Block]:
    """The whole report."""
    return [
        Heading(whatif_title(found), 1),
        *build_banners(found),
        Heading("In three sentences"),
        Bullets(sentences),
        *build_setup_section(found),
        *build_reward_section(found, paths),
        *build_limits_section(found, paths),
        *build_prices_section(found),
        *build_experts_section(found, paths),
        *build_sweep_section(found, paths),
        *build_reading_section(found),
    ]


def build_banners(found: WhatifResults) -> list[Block]:
    """What must not be overlooked."""
    setup, made = found.setup, []
    if setup.world.made_up:
        made.append(Banner(setup.world.story))
    if found.stopped:
        made.append(Banner("This run was stopped: it tells of what had been finished by then."))
    if setup.rounds != setup.due:
        made.append(Banner(describe_partial_period(setup)))
    return [*made]


def describe_partial_period(setup: WhatifPlan) -> str:
    """What is to be said of a play that does not end where a period does."""
    if not setup.due:
        return (
            f"{setup.rounds:,} requests are fewer than a period of {setup.period:,}: no limit fell "
            f"due. Play --rounds {setup.period} or more."
        )
    over = setup.rounds - setup.due
    return (
        f"The last {over:,} of {setup.rounds:,} requests are part of a period of "
        f"{setup.period:,} that was not played to its end: whether limits are kept is told of the "
        f"first {setup.due:,}."
    )


def build_setup_section(found: WhatifResults) -> list[Block]:
    """What was played, on what."""
    setup, world = found.setup, found.setup.world
    problem = setup.problem
    due = (
        f"They are to hold at the end of every {setup.period:,} requests."
        if setup.horizon is None
        else f"They are to hold at the end of the {setup.rounds:,} requests."
    )
    count = len(setup.seeds)
    items = [
        f"{setup.file.path}: {problem.draws} of {problem.size} experts are asked for each request, "
        f"under {len(problem.limits)} limits. {due}",
        f"{len(setup.policies)} polic{'ies' if len(setup.policies) > 1 else 'y'}, each "
        f"{setup.rounds:,} requests under {count} seed{'s' * (count > 1)}; all policies meet the "
        "same requests.",
    ]
    if not world.made_up:
        items.insert(1, world.story)
    if world.questions:
        items.append(
            f"Blank answers in the table: {world.blanks:,} of {world.cells:,}"
            f"{f' ({format_percent(world.blanks / world.cells)})' if world.blanks > 9 else ''}; a blank "
            "counts as an answer that is worth nothing."
        )
    if world.unused:
        names = ", ".join(world.unused[:8]) + (", ..." if len(world.unused) > 8 else "")
        items.append(f"Columns of no expert of the problem, which were not used: {names}.")
    if world.contexts:
        names = ", ".join(world.contexts)
        items.append(f"Kinds of requests that are told apart: {names}. Policies learn each apart.")
    elif setup.file.contexts:
        items.append("The file names kinds of requests (contexts); this world knows one kind only.")
    items += [describe_policy(name, setup.cast(name)) for name in setup.policies]
    items += [f"{name} was not played: {why}" for name, why in found.tried.refused.items()]
    items += [f"{name} warns: {what}" for name, what in found.tried.warned.items()]
    return [Heading("What was played"), Bullets(items)]


def build_reward_section(found: WhatifResults, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Rewards, beside the yardsticks."""
    compared = {what: one for what in REFERENCE_COLUMNS if (one := found.mark(what)) is not None}
    rows = [
        (
            name,
            *one.earned,
            *(format_difference(one, mark) for mark in (found.mark(one.kind), *compared.values())),
            *one.inside,
        )
        for name, one in found.standings.items()
    ]
    names = [
        f"vs {REFERENCE_COLUMNS[what]}{'' if one.kept else ' ✗'}" for what, one in compared.items()
    ]
    head = ("policy", "reward", "±", "last tenth", "vs best of its kind", *names)
    blocks: list[Block] = [
        Heading("What is earned"),
        *figure_blocks(
            paths,
            "reward",
            "Reward of the policies over the requests, against the yardsticks",
            "Mean over seeds; the band is one standard deviation. A policy that breaks limits may "
            "earn more than the best that keeps them.",
        ),
        TableBlock(
            f"Mean reward of a request, ± its standard deviation over seeds, and the difference "
            f"to each yardstick (✗: one that breaks limits). The kind of {describe_kinds(found)}. How "
            f"many seeds ended inside all limits, on average over whole periods, and how many "
            f"periods did.",
            (*head, "seeds inside", "periods inside"),
            rows,
        ),
    ]
    marks = [(REFERENCE_LABELS[what], *reference_cells(one)) for what, one in found.marks.items()]
    if marks:
        yardsticks = ("yardstick", "reward", "proved ceiling", "keeps the limits")
        caption = "What would be earned without learning, by whoever knew the world beforehand."
        blocks.append(TableBlock(caption, yardsticks, marks))
        notes = [
            f"{REFERENCE_LABELS[what]}: {one.note}."
            for what, one in found.marks.items()
            if one.note
        ]
        blocks += [Bullets(notes)] if notes else []
    return blocks


def format_difference(one: PolicyResult, mark: Reference | None) -> str:
    """How far above a yardstick, if there is one."""
    return "-" if mark is None else f"{one.reward - mark.value:+.4f}"


def describe_kinds(found: WhatifResults) -> str:
    """Which policies are of which kind, in words."""
    by_kind = {
        kind: [name for name, one in found.standings.items() if one.kind == kind]
        for kind in DISTRIBUTION_KINDS
    }
    parts = [
        f"{join_words(who, 'and')}: {DISTRIBUTION_KINDS[kind].who}"
        for kind, who in by_kind.items()
        if who
    ]
    return "; ".join(parts)


def reference_cells(one: Reference | MissingReference) -> tuple[str, str, str]:
    """Reward, ceiling, and whether it keeps the limits."""
    if isinstance(one, MissingReference):
        return "-", "-", "-"
    ceiling = "-" if one.ceiling is None else f"{one.ceiling:.4f}"
    return f"{one.value:.4f}", ceiling, "yes" if one.kept else "no"


def build_limits_section(found: WhatifResults, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Whether they were kept."""
    setup = found.setup
    if not setup.problem.limits or not found.standings:
        return []
    rows = []
    for n, promise in enumerate(setup.file.limits):
        cells = []
        for one in found.standings.values():
            spend = np.array([play.spend[n] for play in one.plays])
            left = int(
                (
                    promise.limit.sign * (spend - promise.limit.bound)
                    < -1e-12 * promise.limit.bound
                ).sum()
            )
            mean = f"{found.in_unit(promise, float(spend.mean())):.4g}"
            cells.append(f"{mean} ✗ {left}/{len(spend)}" if left and setup.due else mean)
        rows.append((promise.words, *cells))
    more = (
        "" if len(rows) <= MAX_LIMIT_PANELS else f" The first {MAX_LIMIT_PANELS} limits are shown."
    )
    return [
        Heading("Are the limits kept?"),
        *figure_blocks(
            paths,
            "limits",
            "Average under each limit over the requests",
            f"{LIMIT_FIGURE_CAPTIONS[has_several_periods(setup)]}: mean over seeds, and a band from the lowest to the "
            f"highest.{more}",
        ),
        TableBlock(
            f"Average over {'whole periods' if setup.due else 'the requests played'}, mean over "
            "seeds, in the unit of the problem file; ✗: seeds that ended outside the limit.",
            ("limit", *found.standings),
            rows,
        ),
    ]


LIMIT_FIGURE_CAPTIONS = {
    True: "Average of each period, at its end, which is when limits are due",
    False: "Averages since the first request",
}
"""What the figure of limits shows: periods by themselves, if there are several."""


def build_prices_section(found: WhatifResults) -> list[Block]:
    """What each limit costs, to every kind of law that was played."""
    if not found.setup.problem.limits or not any(found.prices.values()):
        return []
    return [
        Heading("What each limit costs"),
        Paragraph(
            "The price of a limit is what the best law would earn more, per request, if the bound "
            "had a unit more room. It comes from the optimum itself; to check it, each bound was "
            "moved a little and the optimum computed anew. Different kinds of laws put different "
            "prices on the same limit: take those of the policy you are going to run."
        ),
        *(price_table(found, kind) for kind in found.prices),
    ]


def price_table(found: WhatifResults, kind: str) -> TableBlock:
    """Prices at the best law of a kind."""
    who = join_words([name for name, one in found.standings.items() if one.kind == kind], "and")
    rows = []
    for promise, one in zip(found.setup.file.limits, found.prices[kind], strict=True):
        binds = found.gain(one) > 1e-7
        unit = found.setup.problem.draws if promise.per == "draw" else 1
        by_price, measured = found.priced_gain(one), found.measured_gain(one)
        rows.append(
            (
                promise.words,
                "yes" if binds else "no",
                f"{abs(found.setup.span * one.price * unit):.4g}" if by_price > 1e-7 else "0",
                f"{by_price:.6f}",
                "-" if measured is None else f"{measured:.6f}",
                PRICE_VERDICTS[one.verdict],
            )
        )
    return TableBlock(
        f"For {DISTRIBUTION_KINDS[kind].who}, as {who} ask{'s' if ' and ' not in who else ''} them: reward of "
        "a request; where a limit does not bind, more room is worth nothing.",
        (
            "limit",
            "binds",
            "price of a unit",
            "1% more room: by the price",
            "by moving it",
            "agree",
        ),
        rows,
    )


def build_experts_section(found: WhatifResults, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Who is asked."""
    if not found.standings:
        return []
    names, order = found.setup.problem.experts, np.argsort(-found.headline.asked, kind="stable")
    asked = {name: one.asked for name, one in found.standings.items()}
    best = found.mark(found.headline.kind)
    if best is not None and best.asked is not None:
        asked[DISTRIBUTION_KINDS[found.headline.kind].name] = best.asked
    rows = [
        (names[i], *(f"{100 * shares[i]:.1f}%" for shares in asked.values())) for i in order[:15]
    ]
    more = (
        ""
        if len(names) <= MAX_EXPERT_ROWS
        else f" The {MAX_EXPERT_ROWS} that are asked most are shown."
    )
    return [
        Heading("Who is asked"),
        *figure_blocks(
            paths,
            "experts",
            "Share of requests in which each expert is asked, by policy",
            f"The ring is the best {DISTRIBUTION_KINDS[found.headline.kind].law}.{more}",
        ),
        TableBlock(
            f"Share of requests in which an expert is asked: the {len(rows)} asked most.",
            ("expert", *asked),
            rows,
        ),
    ]


def build_sweep_section(found: WhatifResults, paths: Mapping[str, list[Path]]) -> list[Block]:
    """The levels of a sweep, and the bound of the file among them."""
    setup = found.setup
    if setup.sweep is None:
        return []
    promise = setup.sweep.promise
    rows = [
        (
            f"{bound:.6g}{' (as in the file)' if level is None else ''}",
            *(
                "-" if (best := found.mark(kind, level)) is None else f"{best.value:.4f}"
                for kind in setup.kinds
            ),
            *(sweep_cell(found, name, level) for name in setup.policies),
        )
        for bound, level in sweep_bounds(setup)
    ]
    names = [DISTRIBUTION_KINDS[kind].name for kind in setup.kinds]
    side, reasons = promise.limit.side.replace("_", " "), describe_gaps(found)
    return [
        Heading(f"What another bound on {promise.limit.name} would buy"),
        *figure_blocks(
            paths,
            "tradeoff",
            f"Mean reward against the bound on {promise.limit.name}",
            "Mean over seeds ± one standard deviation; hollow: some limit was left. A line is "
            "broken where its policy would not play.",
        ),
        TableBlock(
            f"Mean reward; ✗: some limit was left when it was due"
            f"{'; -: not played, see below' if reasons else ''}.",
            (f"{promise.limit.name} {side}, per {promise.per}", *names, *setup.policies),
            rows,
        ),
        *describe_auto_changes(found.setup),
        *reasons,
    ]


def describe_auto_changes(setup: WhatifPlan) -> list[Block]:
    """Where other bounds call for another policy than those of the file do."""
    places: dict[str, list[str]] = {}
    for level in setup.levels:
        for one in set(setup.took(level.number)) - set(setup.took()) if level.problem else ():
            places.setdefault(one, []).append(f"{level.written:.6g}")
    items = [f"At {join_words(where, 'and')}: {one}." for one, where in places.items()]
    return [Bullets(items)] if items else []


def sweep_cell(found: WhatifResults, policy: str, level: int | None) -> str:
    """What a policy earned at a bound."""
    one = found.at(level).get(policy)
    return "-" if one is None else f"{one.reward:.4f}{' ✗' if one.breaks else ''}"


def describe_gaps(found: WhatifResults) -> list[Block]:
    """Why there are gaps in the sweep: each reason once, with the bounds it is about."""
    places: dict[str, list[str]] = {}
    for level in found.setup.levels:
        at = f"{level.written:.6g}"
        if level.reason:
            places.setdefault("no policy can keep all limits", []).append(at)
        for name, why in found.refusals(level.number).items():
            places.setdefault(f"{name} would not play: {why}", []).append(at)
    items = [f"At {join_words(where, 'and')}: {why.rstrip('.')}." for why, where in places.items()]
    return [Bullets(items)] if items else []


def build_reading_section(found: WhatifResults) -> list[Block]:
    """How to read all this."""
    return [
        Heading("How to read this"),
        Bullets(
            [
                "A lot says how likely each panel of different experts is; a law of independent "
                "draws says how likely each expert is in a draw, so that some are drawn twice and "
                "panels have fewer members at times. The best of either kind know the world "
                "beforehand; policies have to learn it from one reward per request.",
                "The best lot is the solution of a linear program. The best law of independent "
                "draws is found by a search from several starts; none exceeds its proved ceiling, "
                "nor that of panels that are full or not. The paper's stand-in for the limits is "
                "linear, and stricter than they are.",
                "The best single panel is found by a greedy search with swaps, and proved where "
                "that can be afforded.",
                "All numbers, with every seed and curve, are in whatif.json.",
            ]
        ),
    ]


def figure_blocks(
    paths: Mapping[str, list[Path]], name: str, alt: str, caption: str
) -> list[Block]:
    """A figure, if it was drawn."""
    if name not in paths:
        return []
    png, svg = paths[name]
    return [Figure(png, svg, alt, caption)]
