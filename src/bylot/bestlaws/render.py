"""What was found of the best laws, for people, for programs and for spreadsheets."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bylot.bestlaws.find import LAWS, Found, Law
from bylot.files.promises import Promise
from bylot.kernels.compile import Floats
from bylot.optima import Mixture
from bylot.text import table

NAMES = {
    "panels": "best panels, all different",
    "exact": "best draws, limits themselves",
    "surrogate": "best draws, paper's stand-in",
}
MOST = "any policy at all"
FIXED = "best fixed set"
PANELS = 10  # of a lot, that are told
SELDOM = 5e-4  # asked less often than this: not worth a line
KEPT = 1e-7  # in units of the largest cost
EARNS = 1e-7  # a bound that is worth less in all is worth nothing


def render(found: Found) -> str:
    """For people."""
    parts = [
        heading(found),
        of_rewards(found),
        of_limits(found),
        of_prices(found),
        of_laws(found),
        of_panels(found),
    ]
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
            none = "none found" if kind == "exact" else "none"  # a search is no proof
            made.append((NAMES[kind], "", "", f"{none}, see below"))
            continue
        best, note = law.best, ""
        if isinstance(best, Mixture):
            count = sum(map(len, best.panels))
            note = f"by lot, of {count} panel{'s' * (count > 1)}"
        elif best.starts > 1:
            note = f"best of {best.starts} starts, {found.span * best.spread:.2g} apart"
        made.append(
            (
                NAMES[kind],
                f"{found.reward(best.value):.6g}",
                f"{found.reward(best.ceiling):.6g}",
                note,
            )
        )
    most = found.reward(found.most.ceiling)
    made.append((MOST, "", f"{most:.6g}", "while it keeps the limits, on average"))
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
            if law.q is not None:
                head += [f"{law.kind}: chance in a draw", "in a request"]
            else:
                head.append(f"{law.kind}: in a request")
        made = [tuple(head)]
        often = np.max([law.asked[x] for law in laws], axis=0)
        for i in np.argsort(-often, kind="stable"):
            if often[i] >= SELDOM:
                pairs = [(law.q, law.asked) for law in laws]
                cells = [f"{of[x, i]:.4f}" for pair in pairs for of in pair if of is not None]
                made.append((found.file.problem.experts[i], *cells))
        seldom = int((often < SELDOM).sum())
        lines += [
            *table(made),
            *([f"and {seldom} who are hardly ever asked"] if seldom else []),
            "",
        ]
    return lines[:-1]


def of_panels(found: Found) -> list[str]:
    """The likeliest panels of the lot, in each context."""
    law = found.laws.get("panels")
    if law is None or not isinstance(law.best, Mixture):
        return []
    lines: list[str] = []
    for context, lot in zip(found.contexts, law.best.panels, strict=True):
        made = [("chance", f"panel in {context}" if context else "panel")]
        made += [(f"{chance:.4f}", ", ".join(panel)) for panel, chance in lot[:PANELS]]
        more = len(lot) - PANELS
        lines += [*table(made), *([f"and {more} more"] if more > 0 else []), ""]
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
        "most": {"reward": found.reward(found.most.value), "gap": found.span * found.most.gap},
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
    best = law.best
    if isinstance(best, Mixture):
        lots = [[{"members": list(one), "chance": p} for one, p in lot] for lot in best.panels]
        own: dict[str, Any] = {"panels": lots}
    else:
        own = {"spread": found.span * best.spread, "starts": best.starts}
        own["probability"] = None if law.q is None else law.q.tolist()
    return {
        "reward": found.reward(best.value),
        "gap": found.span * best.gap,
        **own,
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
    """The laws as lines of a spreadsheet, with a head; numbers in full. Panels have no probability
    in a draw.
    """
    yield ("law", "context", "expert", "probability", "asked")
    for law in found.laws.values():
        for x, context in enumerate(found.contexts):
            for i, expert in enumerate(found.file.problem.experts):
                drawn = "" if law.q is None else repr(float(law.q[x, i]))
                yield (law.kind, context, expert, drawn, repr(float(law.asked[x, i])))
