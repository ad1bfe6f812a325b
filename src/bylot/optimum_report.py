"""What was found of the best laws, for people, for programs and for spreadsheets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bylot._text import format_table, join_words
from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima import (
    BestSet,
    Mixture,
    Optimum,
    ShadowPrice,
    best_mixture,
    best_set,
    check_shadow_prices,
    optimum,
)
from bylot.problem import Problem
from bylot.problem_files import ProblemFile
from bylot.problem_files.limits import WrittenLimit
from bylot.scenario import OptimumInput, Scenario

IID_KINDS = {"exact": True, "surrogate": False}
"""Laws of draws: under the limits themselves, or under the paper's linear stand-in for them."""

DISTRIBUTION_KINDS = ("panels", *IID_KINDS)
"""All laws, in the order in which they are told of."""


@dataclass(frozen=True, eq=False)
class BestDistribution:
    """The best law of its kind, one for each context.

    kind:   panels: M different experts, by lot; exact or surrogate: M independent draws
    best:   what `best_mixture` or `optimum` found, in rewards from 0 to 1
    q:      (X, K), the chance of each expert in a draw; None of panels
    asked:  (X, K), the chance to be asked in a request; of draws, 1 - (1 - q)^M
    costs:  (d,), expected cost of a request under each limit
    prices: of each limit, beside what moving its bound is worth
    """

    kind: str
    best: Optimum | Mixture
    q: Floats | None
    asked: Floats
    costs: Floats
    prices: tuple[ShadowPrice, ...]


@dataclass(frozen=True, eq=False)
class OptimumReport:
    """All that was asked for.

    laws:    by kind; one that was not found is missing, and `reasons` has why
    most:    the best panels of up to M experts: no policy at all earns more under the limits
    chances: (X,), how often each context comes
    each:    is every context under the limits by itself, or all under one budget?
    """

    file: ProblemFile
    world: Scenario
    laws: dict[str, BestDistribution]
    reasons: dict[str, str]
    most: Mixture
    fixed: BestSet
    chances: Floats
    each: bool
    floor: bool
    rounds: int  # of the values that optima were computed on

    @property
    def span(self) -> float:
        """What a reward from 0 to 1 is multiplied by, to be one of the file."""
        return self.file.rewards[1] - self.file.rewards[0]

    def reward(self, value: float) -> float:
        """In the range of rewards that the file has."""
        return self.file.rewards[0] + self.span * value

    @property
    def contexts(self) -> tuple[str, ...]:
        """Names of the rows of a law; one without a name if contexts are not told apart."""
        return self.world.contexts or ("",)


def compute_optimum_report(
    file: ProblemFile,
    world: Scenario,
    *,
    rounds: int = 10_000,
    each: bool = False,
    floor: bool = False,
    starts: int = 8,
    seed: int = 0,
) -> OptimumReport:
    """The best laws for a problem file in a world.

    rounds: of a noisy world, on which optima are computed; outcomes need none
    each:   every context keeps the limits by itself, as in the paper, not all of them together
    floor:  nobody has less than the problem's floor, as the paper's policies
    starts: of the search under exact limits, and the seed of the random ones among them
    """
    problem, ground = file.problem, world.ground(rounds, [seed])
    chances = compute_context_shares(ground)
    every: dict[str, Any] = {"contexts": ground.contexts}
    every["aggregate"] = ground.contexts is not None and not each
    most = best_mixture(problem, ground.stack, fewer=True, **every)
    laws, reasons = {}, {}
    for kind in DISTRIBUTION_KINDS:
        given = every if kind == "panels" else {**every, "floor": floor, "exact": IID_KINDS[kind]}
        try:
            if kind == "panels":
                best: Optimum | Mixture = best_mixture(problem, ground.stack, **given)
            else:
                best = optimum(problem, ground.stack, starts=starts, seed=seed, **given)
        except InfeasibleLimits as error:
            reasons[kind] = explain_missing_kind(file, kind, error)
            continue
        prices = check_shadow_prices(problem, ground.stack, best, **given)
        laws[kind] = make_best_distribution(
            problem, kind, replace(best, gap=tighten_gap(best, most)), chances, prices
        )
    fixed = best_set(problem, ground.stack)
    rounds = ground.stack.rounds
    return OptimumReport(file, world, laws, reasons, most, fixed, chances, each, floor, rounds)


def tighten_gap(best: Optimum | Mixture, most: Mixture) -> float:
    """How much better another law could be: by its own proof, or as no policy is better at all."""
    return max(0.0, min(best.gap, most.ceiling - best.value))


def make_best_distribution(
    problem: Problem,
    kind: str,
    best: Optimum | Mixture,
    chances: Floats,
    prices: tuple[ShadowPrice, ...],
) -> BestDistribution:
    """A law, with whom it asks and what it costs."""
    if isinstance(best, Mixture):
        q, asked = None, np.atleast_2d(best.asked)
    else:
        q = np.atleast_2d(best.policy)
        asked = best.asked(problem.draws)
    return BestDistribution(kind, best, q, asked, problem.rows @ (chances @ asked), prices)


def explain_missing_kind(file: ProblemFile, kind: str, error: InfeasibleLimits) -> str:
    """Why there is no law of a kind: for the stand-in, the fewest limits that empty it."""
    if kind == "panels":
        full = join_words(map(file.format_limit, error.limits), "and")
        return f"panels that always have {file.problem.draws} members cannot keep {full}"
    conflict = file.problem.surrogate_conflict if kind == "surrogate" else None
    if conflict is None:
        return error.explain(file.format_limit)
    limits = join_words(map(file.format_limit, conflict.limits), "and")
    return f"it is empty, by {limits}, though the limits themselves are not"


def compute_context_shares(ground: OptimumInput) -> Floats:
    """How often each context comes: the weight of its rounds."""
    weights = ground.stack.weights
    if ground.contexts is None:
        return np.ones(1)
    total: Floats = np.bincount(ground.contexts, weights) / weights.sum()
    return total


KIND_LABELS = {
    "panels": "best panels, all different",
    "exact": "best draws, limits themselves",
    "surrogate": "best draws, paper's stand-in",
}
ANY_POLICY_LABEL = "any policy at all"
FIXED_SET_LABEL = "best fixed set"
MAX_SHOWN_PANELS = 10  # of a lot, that are told
MIN_SHOWN_INCLUSION = 5e-4  # asked less often than this: not worth a line
REPORTED_COST_SLACK = 1e-7  # in units of the largest cost
NEGLIGIBLE_GAIN = 1e-7  # a bound that is worth less in all is worth nothing


def render_optimum(found: OptimumReport) -> str:
    """For people."""
    parts = [
        render_optimum_heading(found),
        tabulate_optimum_rewards(found),
        tabulate_optimum_costs(found),
        tabulate_prices(found),
        tabulate_inclusion(found),
        tabulate_panels(found),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def render_optimum_heading(found: OptimumReport) -> list[str]:
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


def tabulate_optimum_rewards(found: OptimumReport) -> list[str]:
    """What each of them earns, and how well that is proved."""
    made: list[tuple[str, ...]] = [("", "reward", "none earns more than", "")]
    for kind in DISTRIBUTION_KINDS:
        law = found.laws.get(kind)
        if law is None:
            none = "none found" if kind == "exact" else "none"  # a search is no proof
            made.append((KIND_LABELS[kind], "", "", f"{none}, see below"))
            continue
        best, note = law.best, ""
        if isinstance(best, Mixture):
            count = sum(map(len, best.panels))
            note = f"by lot, of {count} panel{'s' * (count > 1)}"
        elif best.starts > 1:
            note = f"best of {best.starts} starts, {found.span * best.spread:.2g} apart"
        made.append(
            (
                KIND_LABELS[kind],
                f"{found.reward(best.value):.6g}",
                f"{found.reward(best.ceiling):.6g}",
                note,
            )
        )
    most = found.reward(found.most.ceiling)
    made.append((ANY_POLICY_LABEL, "", f"{most:.6g}", "while it keeps the limits, on average"))
    fixed = found.fixed
    note = "within all limits" if fixed.feasible else "outside: no fixed set keeps all limits"
    value = found.reward(fixed.value)
    made.append((FIXED_SET_LABEL, f"{value:.6g}", f"{value:.6g}" if fixed.proved else "", note))
    who = ", ".join(fixed.members) or "nobody: no set keeps the upper limits"
    reasons = [f"{KIND_LABELS[kind]}: {why}" for kind, why in found.reasons.items()]
    return [*format_table(made), f"{FIXED_SET_LABEL}: {who}", *reasons]


def collect_costs_by_kind(found: OptimumReport) -> dict[str, Floats]:
    """What each of them costs under each limit, per request."""
    return {
        **{kind: law.costs for kind, law in found.laws.items()},
        "fixed": found.fixed.cost,
    }


def tabulate_optimum_costs(found: OptimumReport) -> list[str]:
    """Expected costs beside the bounds, in the unit of the file."""
    spent = collect_costs_by_kind(found)
    head = (
        "limit",
        "bound",
        "",
        *({**KIND_LABELS, "fixed": FIXED_SET_LABEL}[kind] for kind in spent),
    )
    made = [head]
    for j, promise in enumerate(found.file.promises):
        cells = (format_cost_cell(found, j, cost[j]) for cost in spent.values())
        made.append((*format_limit_cells(promise), *cells))
    return format_table(made) if len(made) > 1 else ["Nothing is limited."]


def format_limit_cells(promise: WrittenLimit) -> tuple[str, str, str]:
    """A limit, its bound and per what it is."""
    limit = promise.limit
    return f"{limit.name} {limit.side}", f"{promise.written:.6g}", f"per {promise.per}"


def format_cost_cell(found: OptimumReport, j: int, cost: float) -> str:
    """A cost in the unit of the file, and whether it keeps limit j."""
    return f"{cost / count_units_per_request(found, found.file.promises[j]):.4g} {judge_cost(found, j, cost)}"


def judge_cost(found: OptimumReport, j: int, cost: float) -> str:
    """kept, at the bound, or outside."""
    problem = found.file.problem
    room = problem.signs[j] * (cost - problem.bounds[j]) / problem.peaks[j]
    if room < -REPORTED_COST_SLACK:
        return "outside"
    return "at the bound" if room < REPORTED_COST_SLACK else "kept"


def count_units_per_request(found: OptimumReport, promise: WrittenLimit) -> int:
    """How many of the file's units are one per request."""
    return found.file.problem.draws if promise.per == "draw" else 1


def tabulate_prices(found: OptimumReport) -> list[str]:
    """What one more unit of each bound would earn, by multipliers and by moving the bound."""
    made: list[tuple[str, ...]] = []
    for kind, law in found.laws.items():
        peaks = found.file.problem.peaks
        for promise, price, peak in zip(found.file.promises, law.prices, peaks, strict=True):
            scale = found.span * count_units_per_request(found, promise)
            idle = NEGLIGIBLE_GAIN / (
                price.limit.bound or peak
            )  # of which not even the whole bound earns
            cells = [
                "" if side is None else f"{scale * side if abs(side) > idle else 0.0:.4g}"
                for side in (price.price, price.below, price.above)
            ]
            name = f"{promise.limit.name} {promise.limit.side}"
            verdict = "not checked" if price.central is None else price.verdict
            made.append((KIND_LABELS[kind], name, *cells, verdict))
    if not made:
        return []
    head = ("price of a bound", "limit", "price", "moved down", "moved up", "")
    note = (
        "What one unit more of a bound earns: the multiplier, and what the optimum gains when the "
        "bound moves by a thousandth."
    )
    return [*format_table([head, *made]), note]


def tabulate_inclusion(found: OptimumReport) -> list[str]:
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
            if often[i] >= MIN_SHOWN_INCLUSION:
                pairs = [(law.q, law.asked) for law in laws]
                cells = [f"{of[x, i]:.4f}" for pair in pairs for of in pair if of is not None]
                made.append((found.file.problem.experts[i], *cells))
        seldom = int((often < MIN_SHOWN_INCLUSION).sum())
        lines += [
            *format_table(made),
            *([f"and {seldom} who are hardly ever asked"] if seldom else []),
            "",
        ]
    return lines[:-1]


def tabulate_panels(found: OptimumReport) -> list[str]:
    """The likeliest panels of the lot, in each context."""
    law = found.laws.get("panels")
    if law is None or not isinstance(law.best, Mixture):
        return []
    lines: list[str] = []
    for context, lot in zip(found.contexts, law.best.panels, strict=True):
        made = [("chance", f"panel in {context}" if context else "panel")]
        made += [(f"{chance:.4f}", ", ".join(panel)) for panel, chance in lot[:MAX_SHOWN_PANELS]]
        more = len(lot) - MAX_SHOWN_PANELS
        lines += [*format_table(made), *([f"and {more} more"] if more > 0 else []), ""]
    return lines[:-1]


def optimum_to_data(found: OptimumReport) -> dict[str, Any]:
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
        "laws": {kind: distribution_to_data(found, law) for kind, law in found.laws.items()},
        "reasons": found.reasons,
        "most": {"reward": found.reward(found.most.value), "gap": found.span * found.most.gap},
        "fixed_set": {
            "members": list(found.fixed.members),
            "reward": found.reward(found.fixed.value),
            "feasible": found.fixed.feasible,
            "proved": found.fixed.proved,
            "limits": limit_costs_to_data(found, found.fixed.cost),
        },
    }


def distribution_to_data(found: OptimumReport, law: BestDistribution) -> dict[str, Any]:
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
            for limit, price in zip(limit_costs_to_data(found, law.costs), law.prices, strict=True)
        ],
        "asked": law.asked.tolist(),
    }


def limit_costs_to_data(found: OptimumReport, cost: Floats) -> list[dict[str, Any]]:
    """What is spent under each limit, per request."""
    return [
        {
            "limit": promise.limit.name,
            "side": promise.limit.side,
            "bound": promise.limit.bound,
            "line": promise.place.line,
            "cost": float(cost[j]),
            "kept": judge_cost(found, j, float(cost[j])) != "outside",
        }
        for j, promise in enumerate(found.file.promises)
    ]


def list_optimum_rows(found: OptimumReport) -> Iterator[Sequence[str]]:
    """The laws as lines of a spreadsheet, with a head; numbers in full. Panels have no probability
    in a draw.
    """
    yield ("law", "context", "expert", "probability", "asked")
    for law in found.laws.values():
        for x, context in enumerate(found.contexts):
            for i, expert in enumerate(found.file.problem.experts):
                drawn = "" if law.q is None else repr(float(law.q[x, i]))
                yield (law.kind, context, expert, drawn, repr(float(law.asked[x, i])))
