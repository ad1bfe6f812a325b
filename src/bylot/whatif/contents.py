"""What the report of a what-if run says, in which order."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bylot.report.blocks import Banner, Block, Bullets, Figure, Heading, Table, Text
from bylot.text import share
from bylot.whatif.figures import EXPERTS, PANELS, lead
from bylot.whatif.findings import Findings, limit_name
from bylot.whatif.yardsticks import Nothing, Yardstick

MARKS = {
    "exact": "best fixed law of independent draws that keeps the limits (exact)",
    "surrogate": "best fixed law under the paper's stricter stand-in (surrogate)",
    "set": "best single panel, asked every time",
    "equal": "all experts equally often, by lot",
    "free": "best fixed law if nothing were limited",
}
SHORT = {
    "exact": "best law",
    "surrogate": "surrogate",
    "set": "best panel",
    "equal": "equal shares",
}
VERDICTS = {
    "agrees": "yes",
    "kink": "a kink: it differs by side",
    "edge": "one side only",
    "differs": "no",
}


def title(found: Findings) -> str:
    """Of the whole report."""
    mark = "MADE-UP WORLD: " if found.setup.world.made_up else ""
    path = found.setup.file.path
    return f"{mark}What if {path.parent.name}/{path.name} went live?"


def contents(
    found: Findings, sentences: Sequence[str], paths: Mapping[str, list[Path]]
) -> list[Block]:
    """The whole report."""
    return [
        Heading(title(found), 1),
        *banners(found),
        Heading("In three sentences"),
        Bullets(sentences),
        *asked_for(found),
        *earned(found, paths),
        *limits(found, paths),
        *prices(found),
        *experts(found, paths),
        *tradeoff(found, paths),
        *reading(found),
    ]


def banners(found: Findings) -> list[Block]:
    """What must not be overlooked."""
    setup, made = found.setup, []
    if setup.world.made_up:
        made.append(Banner(setup.world.story))
    if found.stopped:
        made.append(Banner("This run was stopped: it tells of what had been finished by then."))
    if setup.rounds < setup.period:
        made.append(
            Banner(
                f"{setup.rounds:,} requests are fewer than a period of {setup.period:,}: no limit "
                f"fell due. Play --rounds {setup.period} or more."
            )
        )
    return [*made]


def asked_for(found: Findings) -> list[Block]:
    """What was played, on what."""
    setup, world = found.setup, found.setup.world
    problem = setup.problem
    due = (
        f"They are to hold at the end of every {setup.period:,} requests."
        if setup.horizon is None
        else f"They are to hold at the end of the {setup.rounds:,} requests."
    )
    items = [
        f"{setup.file.path}: {problem.draws} of {problem.size} experts are asked for each request, "
        f"under {len(problem.limits)} limits. {due}",
        f"{len(setup.policies)} policies, each {setup.rounds:,} requests under "
        f"{len(setup.seeds)} seeds; all policies meet the same requests.",
    ]
    if not world.made_up:
        items.insert(1, world.story)
    if world.questions:
        items.append(
            f"Blank answers in the table: {world.blanks:,} of {world.cells:,}"
            f"{f' ({share(world.blanks / world.cells)})' if world.blanks > 9 else ''}; a blank "
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
    items += [f"{name} was not played: {why}" for name, why in found.tried.refused.items()]
    items += [f"{name} warns: {what}" for name, what in found.tried.warned.items()]
    return [Heading("What was played"), Bullets(items)]


def earned(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Rewards, beside the yardsticks."""
    compared = {what: one for what in SHORT if (one := found.mark(what)) is not None}
    rows = [
        (
            name,
            *one.earned,
            *(f"{one.reward - mark.value:+.4f}" for mark in compared.values()),
            *one.inside,
        )
        for name, one in found.standings.items()
    ]
    names = [f"vs {SHORT[what]}{'' if one.kept else ' ✗'}" for what, one in compared.items()]
    head = ("policy", "reward", "±", "last tenth", *names)
    blocks: list[Block] = [
        Heading("What is earned"),
        *drawn(
            paths,
            "reward",
            "Reward of the policies over the requests, against the yardsticks",
            "Mean over seeds; the band is one standard deviation. A policy may earn more than the "
            "best fixed law: that law draws independently, so that some draws are duplicates, "
            "and a policy that breaks limits is not bound by them.",
        ),
        Table(
            "Mean reward of a request, ± its standard deviation over seeds, and the difference to "
            "each yardstick (✗: one that breaks limits); how many seeds ended inside all limits, "
            "and how many periods did.",
            (*head, "seeds inside", "periods inside"),
            rows,
        ),
    ]
    marks = [(MARKS[what], *yardstick(one)) for what, one in found.marks.items()]
    if marks:
        yardsticks = ("yardstick", "", "reward", "proved ceiling", "keeps the limits")
        caption = "What would be earned without learning, by whoever knew the world beforehand."
        blocks.append(Table(caption, yardsticks, marks, words=2))
    return blocks


def yardstick(one: Yardstick | Nothing) -> tuple[str, str, str, str]:
    """Note, reward, ceiling, and whether it keeps the limits."""
    if isinstance(one, Nothing):
        return one.note, "-", "-", "-"
    ceiling = "-" if one.ceiling is None else f"{one.ceiling:.4f}"
    return one.note, f"{one.value:.4f}", ceiling, "yes" if one.kept else "no"


def limits(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Whether they were kept."""
    setup = found.setup
    if not setup.problem.limits or not found.standings:
        return []
    rows = []
    for n, promise in enumerate(setup.file.promises):
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
            cells.append(f"{mean} ✗ {left}/{len(spend)}" if left else mean)
        rows.append((limit_name(promise), *cells))
    more = "" if len(rows) <= PANELS else f" The first {PANELS} limits are shown."
    return [
        Heading("Are the limits kept?"),
        *drawn(
            paths,
            "limits",
            "Average under each limit over the requests",
            "Averages since the first request: mean over seeds, and a band from the lowest to the "
            f"highest; vertical lines are ends of periods.{more}",
        ),
        Table(
            "Average over a whole play, mean over seeds, in the unit of the problem file; "
            "✗: seeds that ended outside the limit.",
            ("limit", *found.standings),
            rows,
        ),
    ]


def prices(found: Findings) -> list[Block]:
    """What each limit costs."""
    if not found.prices:
        return []
    rows = []
    for promise, one in zip(found.setup.file.promises, found.prices, strict=True):
        per_unit = (
            found.setup.span
            * one.price
            * (found.setup.problem.draws if promise.per == "draw" else 1)
        )
        measured = found.measured_gain(one)
        rows.append(
            (
                limit_name(promise),
                "yes" if found.gain(one) > 1e-7 else "no",
                f"{abs(per_unit):.4g}" if found.gain(one) > 1e-7 else "0",
                f"{found.gain(one):.6f}",
                "-" if measured is None else f"{measured:.6f}",
                VERDICTS[one.verdict],
            )
        )
    return [
        Heading("What each limit costs"),
        Text(
            "The price of a limit is what the best fixed law would earn more, per request, if the "
            "bound had a unit more room. It comes from the optimum itself; to check it, each bound "
            "was moved a little and the optimum computed anew."
        ),
        Table(
            "Reward of a request; where a limit does not bind, more room is worth nothing.",
            (
                "limit",
                "binds",
                "price of a unit",
                "1% more room: by the price",
                "by moving it",
                "agree",
            ),
            rows,
        ),
    ]


def experts(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Who is asked."""
    if not found.standings:
        return []
    names, order = found.setup.problem.experts, np.argsort(-lead(found), kind="stable")
    asked = {name: one.asked for name, one in found.standings.items()}
    best = found.mark("exact")
    if best is not None and best.asked is not None:
        asked["best law"] = best.asked
    rows = [
        (names[i], *(f"{100 * shares[i]:.1f}%" for shares in asked.values())) for i in order[:15]
    ]
    more = "" if len(names) <= EXPERTS else f" The {EXPERTS} that are asked most are shown."
    return [
        Heading("Who is asked"),
        *drawn(
            paths,
            "experts",
            "Share of requests in which each expert is asked, by policy",
            f"The ring is what the best fixed law would do.{more}",
        ),
        Table(
            f"Share of requests in which an expert is asked: the {len(rows)} asked most.",
            ("expert", *asked),
            rows,
        ),
    ]


def tradeoff(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
    """The levels of a sweep."""
    setup = found.setup
    if setup.sweep is None:
        return []
    promise, rows = setup.sweep.promise, []
    for level in setup.levels:
        best, played = found.mark("exact", level.number), found.at(level.number)
        cells = [
            "-"
            if (one := played.get(name)) is None
            else f"{one.reward:.4f}{'' if one.keeps else ' ✗'}"
            for name in setup.policies
        ]
        shown = "-" if best is None else f"{best.value:.4f}"
        rows.append(
            (f"{level.written:.6g}", shown, *cells, "cannot be kept" if level.reason else "")
        )
    side = promise.limit.side.replace("_", " ")
    name = f"{promise.limit.name} {side}, per {promise.per}"
    return [
        Heading(f"What another bound on {promise.limit.name} would buy"),
        *drawn(
            paths,
            "tradeoff",
            f"Mean reward against the bound on {promise.limit.name}",
            "Mean over seeds ± one standard deviation; hollow: some limit was left.",
        ),
        Table(
            "Mean reward; ✗: some limit was left when it was due.",
            (name, "best law", *setup.policies, ""),
            rows,
        ),
    ]


def reading(found: Findings) -> list[Block]:
    """How to read all this."""
    return [
        Heading("How to read this"),
        Bullets(
            [
                "A law says how likely each expert is in a draw. The best fixed law knows the "
                "world beforehand; policies have to learn it from one reward per request.",
                "Exact: its expected costs keep the limits themselves. Such laws are found by a "
                "search from several starts; no law exceeds the proved ceiling. Surrogate: the "
                "paper's linear stand-in for the limits, which is stricter than they are.",
                "The best single panel is found by a greedy search with swaps, and proved where "
                "that can be afforded.",
                "All numbers, with every seed and curve, are in whatif.json.",
            ]
        ),
    ]


def drawn(paths: Mapping[str, list[Path]], name: str, alt: str, caption: str) -> list[Block]:
    """A figure, if it was drawn."""
    if name not in paths:
        return []
    png, svg = paths[name]
    return [Figure(png, svg, alt, caption)]
