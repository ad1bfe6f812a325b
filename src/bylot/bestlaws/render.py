"""What was found of the best laws, for people, for programs and for spreadsheets."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bylot.bestlaws.find import LAWS, Found, Law
from bylot.files.promises import Promise
from bylot.kernels.compile import Floats
from bylot.text import table

NAMES = {"exact": "best draws, limits themselves", "surrogate": "best draws, paper's stand-in"}
FIXED = "best fixed set"
SELDOM = 5e-4  # asked less often than this: not worth a line
KEPT = 1e-7  # in units of the largest cost
EARNS = 1e-7  # a bound that is worth less in all is worth nothing


def render(found: Found) -> str:
    """For people."""
    parts = [heading(found), of_rewards(found), of_limits(found), of_prices(found), of_laws(found)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def heading(found: Found) -> list[str]:
    """What is played on, in a few lines."""
    problem, world = found.file.problem, found.world
    lines = [
        f"{found.file.path}: {problem.size} experts, {problem.draws} drawn for each request",
        world.story,
    ]
    if world.questions:
        lines.append(
            f"blank answers, which are worth nothing: {world.blanks:,} of {world.cells:,}; "
            "values are exact expectations"
        )
    else:
        lines.append(f"values are those of {found.rounds:,} requests that were drawn")
    if world.contexts:
        comes = ", ".join(
            f"{name} {chance:.3g}"
            for name, chance in zip(found.contexts, found.chances, strict=True)
        )
        budget = "each within the limits" if found.each else "within the limits together"
        lines.append(f"a law for each context, {budget}; how often each comes: {comes}")
    return lines


def of_rewards(found: Found) -> list[str]:
    """What each of them earns, and how well that is proved."""
    made: list[tuple[str, ...]] = [("", "reward", "none earns more than", "")]
    for kind in LAWS:
        law = found.laws.get(kind)
        if law is None:
            made.append((NAMES[kind], "", "", "none: no law keeps it"))
            continue
        best, note = law.best, ""
        if best.starts > 1:
            note = f"best of {best.starts} starts, {found.span * best.spread:.2g} apart"
        made.append(
            (
                NAMES[kind],
                f"{found.reward(best.value):.6g}",
                f"{found.reward(best.ceiling):.6g}",
                note,
            )
        )
    fixed = found.fixed
    note = "within all limits" if fixed.feasible else "outside: no fixed set keeps all limits"
    value = found.reward(fixed.value)
    made.append((FIXED, f"{value:.6g}", f"{value:.6g}" if fixed.proved else "", note))
    who = ", ".join(fixed.members) or "nobody: no set keeps the upper limits"
    reasons = [f"{NAMES[kind]}: {why}" for kind, why in found.reasons.items()]
    return [*table(made), f"{FIXED}: {who}", *reasons]


def costs(found: Found) -> dict[str, Floats]:
    """What each of them costs under each limit, per request."""
    return {
        **{kind: law.costs for kind, law in found.laws.items()},
        "fixed": found.fixed.cost,
    }


def of_limits(found: Found) -> list[str]:
    """Expected costs beside the bounds, in the unit of the file."""
    spent = costs(found)
    head = ("limit", "bound", "", *({**NAMES, "fixed": FIXED}[kind] for kind in spent))
    made = [head]
    for j, promise in enumerate(found.file.promises):
        cells = (against(found, j, cost[j]) for cost in spent.values())
        made.append((*named(promise), *cells))
    return table(made) if len(made) > 1 else ["Nothing is limited."]


def named(promise: Promise) -> tuple[str, str, str]:
    """A limit, its bound and per what it is."""
    limit = promise.limit
    return f"{limit.name} {limit.side}", f"{promise.written:.6g}", f"per {promise.per}"


def against(found: Found, j: int, cost: float) -> str:
    """A cost in the unit of the file, and whether it keeps limit j."""
    return f"{cost / unit(found, found.file.promises[j]):.4g} {told(found, j, cost)}"


def told(found: Found, j: int, cost: float) -> str:
    """kept, at the bound, or outside."""
    problem = found.file.problem
    room = problem.signs[j] * (cost - problem.bounds[j]) / problem.peaks[j]
    if room < -KEPT:
        return "outside"
    return "at the bound" if room < KEPT else "kept"


def unit(found: Found, promise: Promise) -> int:
    """How many of the file's units are one per request."""
    return found.file.problem.draws if promise.per == "draw" else 1


def of_prices(found: Found) -> list[str]:
    """What one more unit of each bound would earn, by multipliers and by moving the bound."""
    made: list[tuple[str, ...]] = []
    for kind, law in found.laws.items():
        peaks = found.file.problem.peaks
        for promise, price, peak in zip(found.file.promises, law.prices, peaks, strict=True):
            scale = found.span * unit(found, promise)
            idle = EARNS / (price.limit.bound or peak)  # of which not even the whole bound earns
            cells = [
                "" if side is None else f"{scale * side if abs(side) > idle else 0.0:.4g}"
                for side in (price.price, price.below, price.above)
            ]
            name = f"{promise.limit.name} {promise.limit.side}"
            verdict = "not checked" if price.central is None else price.verdict
            made.append((NAMES[kind], name, *cells, verdict))
    if not made:
        return []
    head = ("price of a bound", "limit", "price", "moved down", "moved up", "")
    note = (
        "What one unit more of a bound earns: the multiplier, and what the optimum gains when the "
        "bound moves by a thousandth."
    )
    return [*table([head, *made]), note]


def of_laws(found: Found) -> list[str]:
    """Who is asked how often, in each context."""
    laws = list(found.laws.values())
    if not laws:
        return []
    lines: list[str] = []
    for x, context in enumerate(found.contexts):
        head = [f"in {context}" if context else "expert"]
        for law in laws:
            head += [f"{law.kind}: chance in a draw", "in a request"]
        made = [tuple(head)]
        often = np.max([law.asked[x] for law in laws], axis=0)
        for i in np.argsort(-often, kind="stable"):
            if often[i] >= SELDOM:
                pairs = [(law.q[x, i], law.asked[x, i]) for law in laws]
                cells = [f"{chance:.4f}" for pair in pairs for chance in pair]
                made.append((found.file.problem.experts[i], *cells))
        seldom = int((often < SELDOM).sum())
        lines += [
            *table(made),
            *([f"and {seldom} who are hardly ever asked"] if seldom else []),
            "",
        ]
    return lines[:-1]


def data(found: Found) -> dict[str, Any]:
    """For programs: what `--json` prints, rewards in the range of the file."""
    file, world = found.file, found.world
    return {
        "file": str(file.path),
        "world": {
            "story": world.story,
            "made_up": world.made_up,
            "questions": world.questions,
            "blanks": world.blanks,
            "unused": list(world.unused),
            "exact": bool(world.questions),
            "rounds": found.rounds,
        },
        "contexts": dict(zip(world.contexts, found.chances.tolist(), strict=False)),
        "limits_of_each_context": found.each,
        "floor": file.problem.floor if found.floor else 0.0,
        "experts": list(file.problem.experts),
        "laws": {kind: law_data(found, law) for kind, law in found.laws.items()},
        "reasons": found.reasons,
        "fixed_set": {
            "members": list(found.fixed.members),
            "reward": found.reward(found.fixed.value),
            "feasible": found.fixed.feasible,
            "proved": found.fixed.proved,
            "limits": limits_data(found, found.fixed.cost),
        },
    }


def law_data(found: Found, law: Law) -> dict[str, Any]:
    """One law; prices per request and in the unit of each bound per request."""
    return {
        "reward": found.reward(law.best.value),
        "gap": found.span * law.best.gap,
        "spread": found.span * law.best.spread,
        "starts": law.best.starts,
        "limits": [
            {
                **limit,
                "price": found.span * price.price,
                "moved_down": None if price.below is None else found.span * price.below,
                "moved_up": None if price.above is None else found.span * price.above,
                "step": price.step,
                "verdict": price.verdict,
            }
            for limit, price in zip(limits_data(found, law.costs), law.prices, strict=True)
        ],
        "probability": law.q.tolist(),
        "asked": law.asked.tolist(),
    }


def limits_data(found: Found, cost: Floats) -> list[dict[str, Any]]:
    """What is spent under each limit, per request."""
    return [
        {
            "limit": promise.limit.name,
            "side": promise.limit.side,
            "bound": promise.limit.bound,
            "line": promise.place.line,
            "cost": float(cost[j]),
            "kept": told(found, j, float(cost[j])) != "outside",
        }
        for j, promise in enumerate(found.file.promises)
    ]


def rows(found: Found) -> Iterator[Sequence[str]]:
    """The laws as lines of a spreadsheet, with a head; numbers in full."""
    yield ("law", "context", "expert", "probability", "asked")
    for law in found.laws.values():
        for context, q, asked in zip(found.contexts, law.q, law.asked, strict=True):
            for expert, *pair in zip(found.file.problem.experts, q, asked, strict=True):
                yield (law.kind, context, expert, *(repr(float(chance)) for chance in pair))
