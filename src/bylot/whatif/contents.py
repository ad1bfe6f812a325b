"""What the report of a what-if run says, in which order."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bylot.files.problem_file import in_words
from bylot.report.blocks import Banner, Block, Bullets, Figure, Heading, Table, Text
from bylot.text import share
from bylot.whatif.cast import KINDS, about
from bylot.whatif.figures import EXPERTS, PANELS, bounds, in_periods
from bylot.whatif.findings import Findings, Standing
from bylot.whatif.setup import Setup
from bylot.whatif.yardsticks import Nothing, Yardstick

MARKS = {
    "panels": "best lot of full panels, all different, that keeps the limits",
    "exact": "best law of independent draws that keeps the limits",
    "surrogate": "best law of independent draws under the paper's stricter stand-in",
    "most": "best lot of panels, full or not: no policy that keeps the limits earns more",
    "set": "best single panel, asked every time",
    "equal": "all experts equally often, by lot",
    "free-panels": "best full panels if nothing were limited",
    "free-draws": "best law of independent draws if nothing were limited",
}
SHORT = {"most": "any policy", "set": "best panel", "equal": "equal shares"}
VERDICTS = {
    "agrees": "yes",
    "kink": "a kink: it differs by side",
    "edge": "one side only",
    "differs": "no",
}


def title(found: Findings) -> str:
    """Of the whole report."""
    mark = "MADE-UP WORLD: " if found.setup.world.made_up else ""
    path = found.setup.file.path.resolve()
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
    if setup.rounds != setup.due:
        made.append(Banner(uneven(setup)))
    return [*made]


def uneven(setup: Setup) -> str:
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


def asked_for(found: Findings) -> list[Block]:
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
    items += [about(name, setup.cast(name)) for name in setup.policies]
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
            *(away(one, mark) for mark in (found.mark(one.kind), *compared.values())),
            *one.inside,
        )
        for name, one in found.standings.items()
    ]
    names = [f"vs {SHORT[what]}{'' if one.kept else ' ✗'}" for what, one in compared.items()]
    head = ("policy", "reward", "±", "last tenth", "vs best of its kind", *names)
    blocks: list[Block] = [
        Heading("What is earned"),
        *drawn(
            paths,
            "reward",
            "Reward of the policies over the requests, against the yardsticks",
            "Mean over seeds; the band is one standard deviation. A policy that breaks limits may "
            "earn more than the best that keeps them.",
        ),
        Table(
            f"Mean reward of a request, ± its standard deviation over seeds, and the difference "
            f"to each yardstick (✗: one that breaks limits). The kind of {in_kinds(found)}. How "
            f"many seeds ended inside all limits, on average over whole periods, and how many "
            f"periods did.",
            (*head, "seeds inside", "periods inside"),
            rows,
        ),
    ]
    marks = [(MARKS[what], *yardstick(one)) for what, one in found.marks.items()]
    if marks:
        yardsticks = ("yardstick", "reward", "proved ceiling", "keeps the limits")
        caption = "What would be earned without learning, by whoever knew the world beforehand."
        blocks.append(Table(caption, yardsticks, marks))
        notes = [f"{MARKS[what]}: {one.note}." for what, one in found.marks.items() if one.note]
        blocks += [Bullets(notes)] if notes else []
    return blocks


def away(one: Standing, mark: Yardstick | None) -> str:
    """How far above a yardstick, if there is one."""
    return "-" if mark is None else f"{one.reward - mark.value:+.4f}"


def in_kinds(found: Findings) -> str:
    """Which policies are of which kind, in words."""
    by_kind = {
        kind: [name for name, one in found.standings.items() if one.kind == kind] for kind in KINDS
    }
    parts = [f"{in_words(who, 'and')}: {KINDS[kind].who}" for kind, who in by_kind.items() if who]
    return "; ".join(parts)


def yardstick(one: Yardstick | Nothing) -> tuple[str, str, str]:
    """Reward, ceiling, and whether it keeps the limits."""
    if isinstance(one, Nothing):
        return "-", "-", "-"
    ceiling = "-" if one.ceiling is None else f"{one.ceiling:.4f}"
    return f"{one.value:.4f}", ceiling, "yes" if one.kept else "no"


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
            cells.append(f"{mean} ✗ {left}/{len(spend)}" if left and setup.due else mean)
        rows.append((promise.words, *cells))
    more = "" if len(rows) <= PANELS else f" The first {PANELS} limits are shown."
    return [
        Heading("Are the limits kept?"),
        *drawn(
            paths,
            "limits",
            "Average under each limit over the requests",
            f"{LIMITS[in_periods(setup)]}: mean over seeds, and a band from the lowest to the "
            f"highest.{more}",
        ),
        Table(
            f"Average over {'whole periods' if setup.due else 'the requests played'}, mean over "
            "seeds, in the unit of the problem file; ✗: seeds that ended outside the limit.",
            ("limit", *found.standings),
            rows,
        ),
    ]


LIMITS = {
    True: "Average of each period, at its end, which is when limits are due",
    False: "Averages since the first request",
}
"""What the figure of limits shows: periods by themselves, if there are several."""


def prices(found: Findings) -> list[Block]:
    """What each limit costs, to every kind of law that was played."""
    if not found.setup.problem.limits or not any(found.prices.values()):
        return []
    return [
        Heading("What each limit costs"),
        Text(
            "The price of a limit is what the best law would earn more, per request, if the bound "
            "had a unit more room. It comes from the optimum itself; to check it, each bound was "
            "moved a little and the optimum computed anew. Different kinds of laws put different "
            "prices on the same limit: take those of the policy you are going to run."
        ),
        *(price_table(found, kind) for kind in found.prices),
    ]


def price_table(found: Findings, kind: str) -> Table:
    """Prices at the best law of a kind."""
    who = in_words([name for name, one in found.standings.items() if one.kind == kind], "and")
    rows = []
    for promise, one in zip(found.setup.file.promises, found.prices[kind], strict=True):
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
                VERDICTS[one.verdict],
            )
        )
    return Table(
        f"For {KINDS[kind].who}, as {who} ask{'s' if ' and ' not in who else ''} them: reward of "
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


def experts(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
    """Who is asked."""
    if not found.standings:
        return []
    names, order = found.setup.problem.experts, np.argsort(-found.headline.asked, kind="stable")
    asked = {name: one.asked for name, one in found.standings.items()}
    best = found.mark(found.headline.kind)
    if best is not None and best.asked is not None:
        asked[KINDS[found.headline.kind].name] = best.asked
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
            f"The ring is the best {KINDS[found.headline.kind].law}.{more}",
        ),
        Table(
            f"Share of requests in which an expert is asked: the {len(rows)} asked most.",
            ("expert", *asked),
            rows,
        ),
    ]


def tradeoff(found: Findings, paths: Mapping[str, list[Path]]) -> list[Block]:
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
            *(played_at(found, name, level) for name in setup.policies),
        )
        for bound, level in bounds(setup)
    ]
    names = [KINDS[kind].name for kind in setup.kinds]
    side, reasons = promise.limit.side.replace("_", " "), why_not(found)
    return [
        Heading(f"What another bound on {promise.limit.name} would buy"),
        *drawn(
            paths,
            "tradeoff",
            f"Mean reward against the bound on {promise.limit.name}",
            "Mean over seeds ± one standard deviation; hollow: some limit was left. A line is "
            "broken where its policy would not play.",
        ),
        Table(
            f"Mean reward; ✗: some limit was left when it was due"
            f"{'; -: not played, see below' if reasons else ''}.",
            (f"{promise.limit.name} {side}, per {promise.per}", *names, *setup.policies),
            rows,
        ),
        *recast(found.setup),
        *reasons,
    ]


def recast(setup: Setup) -> list[Block]:
    """Where other bounds call for another policy than those of the file do."""
    places: dict[str, list[str]] = {}
    for level in setup.levels:
        for one in set(setup.took(level.number)) - set(setup.took()) if level.problem else ():
            places.setdefault(one, []).append(f"{level.written:.6g}")
    items = [f"At {in_words(where, 'and')}: {one}." for one, where in places.items()]
    return [Bullets(items)] if items else []


def played_at(found: Findings, policy: str, level: int | None) -> str:
    """What a policy earned at a bound."""
    one = found.at(level).get(policy)
    return "-" if one is None else f"{one.reward:.4f}{' ✗' if one.breaks else ''}"


def why_not(found: Findings) -> list[Block]:
    """Why there are gaps in the sweep: each reason once, with the bounds it is about."""
    places: dict[str, list[str]] = {}
    for level in found.setup.levels:
        at = f"{level.written:.6g}"
        if level.reason:
            places.setdefault("no policy can keep all limits", []).append(at)
        for name, why in found.refusals(level.number).items():
            places.setdefault(f"{name} would not play: {why}", []).append(at)
    items = [f"At {in_words(where, 'and')}: {why.rstrip('.')}." for why, where in places.items()]
    return [Bullets(items)] if items else []


def reading(found: Findings) -> list[Block]:
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


def drawn(paths: Mapping[str, list[Path]], name: str, alt: str, caption: str) -> list[Block]:
    """A figure, if it was drawn."""
    if name not in paths:
        return []
    png, svg = paths[name]
    return [Figure(png, svg, alt, caption)]
