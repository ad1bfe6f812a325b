"""The report of `bylot optimum`: the best distributions over panels for a scenario."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bylot import optima
from bylot._text import format_labels, format_sizes, format_table, join_words
from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.problem.window_bounds import restate_per_request
from bylot.problem_files import ProblemFile
from bylot.scenario import Scenario

KIND_LABELS = {
    "panels": "best mixture of panels",
    "exact": "best i.i.d. draws, exact limits",
    "surrogate": "best i.i.d. draws, surrogate",
}
FIXED_SET_LABEL = "best fixed panel"
MAX_SHOWN_PANELS = 10  # panels of a mixture that are printed
MIN_SHOWN_INCLUSION = 5e-4  # experts asked less often are not printed
REPORTED_COST_SLACK = 1e-7  # in units of the largest cost
NEGLIGIBLE_GAIN = 1e-7  # a whole bound that is worth less has no price


@dataclass(frozen=True, eq=False)
class BestDistribution:
    """The best distribution of one kind, with a row for each context."""

    best: optima.IidOptimum | optima.Optimum  # for rewards from 0 to 1
    q: Floats | None  # (X, K), draw probabilities; None for panels
    inclusion: Floats  # (X, K), probability of each expert to be asked in a request
    costs: Floats  # (d,), expected cost of a request under each limit
    prices: tuple[optima.ShadowPrice, ...]


@dataclass(frozen=True, eq=False)
class OptimumReport:
    """All optima of a problem file in a scenario."""

    file: ProblemFile
    scenario: Scenario
    found: dict[str, BestDistribution]  # by kind; panels: M different experts, else draws
    missing: dict[str, str]  # the reasons for kinds not found
    any_policy: optima.Optimum  # of up to M experts: no policy earns more under the limits
    fixed: optima.BestSet
    shares: Floats  # (X,), the frequency of each context
    each_context: bool  # whether every context keeps the limits on its own, or all together
    floor: bool
    rounds: int

    @property
    def contexts(self) -> tuple[str, ...]:
        """Names of the contexts; one empty name without contexts."""
        return self.scenario.contexts or ("",)


def compute_optimum_report(
    file: ProblemFile,
    scenario: Scenario,
    *,
    rounds: int = 10_000,
    each_context: bool = False,
    floor: bool = False,
    starts: int = 8,
    seed: int = 0,
) -> OptimumReport:
    """Compute the best distributions for a problem file in a scenario.

    rounds: rounds of a noisy scenario to compute optima on; outcome tables need none
    floor:  no draw probability is below the problem's floor, as in the paper
    starts: starts of the search under exact limits; `seed` is that of the random ones

    Budgets of the calendar count as bounds per request, at the traffic of the problem; all requests
    are of one tenant.
    """
    file = file.as_one_tenant()
    problem = restate_per_request(file.problem)
    data = scenario.optimum_input(rounds, [seed])
    shares, stack = data.context_shares(), data.stack
    common: dict[str, Any] = {"contexts": data.contexts, "each_context": each_context}
    any_policy = optima.optimum(problem, stack, fewer=True, **common)
    found, missing = {}, {}
    for kind in KIND_LABELS:
        options = common | ({} if kind == "panels" else {"floor": floor, "exact": kind == "exact"})
        best: optima.Optimum | optima.IidOptimum
        try:
            if kind == "panels":
                best = optima.optimum(problem, stack, **options)
                q, inclusion = None, np.atleast_2d(best.inclusion)
            else:
                best = optima.iid_optimum(problem, stack, starts=starts, seed=seed, **options)
                q, inclusion = np.atleast_2d(best.policy), best.inclusion(problem.draws)
        except InfeasibleLimits as error:
            missing[kind] = explain_missing_kind(file, kind, error)
            continue
        found[kind] = BestDistribution(
            best=replace(best, gap=max(0.0, min(best.gap, any_policy.ceiling - best.value))),
            q=q,
            inclusion=inclusion,
            costs=problem.rows @ (shares @ inclusion),
            prices=optima.check_shadow_prices(problem, stack, best, **options),
        )
    return OptimumReport(
        *(file, scenario, found, missing, any_policy),
        fixed=optima.best_set(problem, stack),
        shares=shares,
        each_context=each_context,
        floor=floor,
        rounds=stack.rounds,
    )


def explain_missing_kind(file: ProblemFile, kind: str, error: InfeasibleLimits) -> str:
    empty = file.problem.surrogate_conflict if kind == "surrogate" else None
    if empty is None:
        return error.explain(file.format_limit)
    limits = join_words(map(file.format_limit, empty.limits), "and")
    return f"the surrogate of {limits} is empty; the limits are not"


def render_optimum(report: OptimumReport, details: bool) -> str:
    """The report as text: four numbers; details are the problem, the scenario, and tables."""
    problem, scenario = report.file.problem, report.scenario
    lead = format_labels(list_main_numbers(report))
    lead += report.file.describe_request_bounds()
    if scenario.synthetic:
        lead = [scenario.description, *lead]
    if not details:
        return "\n".join([*lead, "Use --details for distributions, costs and all prices."])
    head = f"{report.file.path}: {problem.size} experts, {problem.draws} draws per request"
    lines = [head, scenario.description]
    if scenario.questions:
        blanks = f"blank answers, which count as 0: {scenario.blanks:,} of {scenario.cells:,}"
        lines.append(f"{blanks}; values are exact expectations")
    else:
        lines.append(f"values are those of {report.rounds:,} simulated requests")
    if scenario.contexts:
        pairs = zip(report.contexts, report.shares, strict=True)
        shares = ", ".join(f"{name} {share:.3g}" for name, share in pairs)
        budget = "each context keeps the limits" if report.each_context else "one budget for all"
        lines.append(f"one distribution per context, {budget}; frequencies: {shares}")
    parts = [
        lead,
        lines,
        tabulate_optimum_rewards(report),
        tabulate_optimum_costs(report),
        tabulate_prices(report),
        tabulate_inclusion(report),
        tabulate_panels(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def list_main_numbers(report: OptimumReport) -> dict[str, str]:
    """The best reward, what no policy exceeds, the spend, and the limit to loosen."""
    file, one = report.file, report.found["panels"]
    asked = report.shares @ one.inclusion
    spend = file.format_spend({x: float(file.problem.costs[x] @ asked) for x in file.units})
    return {
        "best reward": f"{file.to_reward(one.best.value):.6g} per request, by {one.best.question}",
        "upper bound": f"{file.to_reward(report.any_policy.ceiling):.6g} per request: no policy "
        "that keeps the limits earns more, with panels of "
        f"{format_sizes(*report.any_policy.sizes)} experts",
        "spend": f"{spend} per request" if spend else "nothing has a cost",
        "limit to loosen": describe_best_price(report, one),
    }


def describe_best_price(report: OptimumReport, one: BestDistribution) -> str:
    """The limit of which 1 % earns most; of a bound of 0, what its largest cost would earn."""
    file = report.file
    gains = [file.span * price.gain for price in one.prices]
    if max(gains, default=0.0) <= NEGLIGIBLE_GAIN * file.span:
        return "none: no limit costs anything" if gains else "none: there are no limits"
    n = gains.index(max(gains))
    written, unit = file.limits[n], file.limits[n].unit(file.problem.draws)
    price = f"shadow price {abs(file.span * one.prices[n].price * unit):.4g}"
    gain = f"1% looser earns {gains[n]:.2g} more ({price})" if written.written else price
    return f'"{written.words}": {gain}'


def tabulate_optimum_rewards(report: OptimumReport) -> list[str]:
    file, fixed = report.file, report.fixed
    rows: list[tuple[str, ...]] = [("", "reward", "upper bound", "")]
    for kind, label in KIND_LABELS.items():
        if kind not in report.found:
            none = "none found" if kind == "exact" else "none"  # a search is no proof
            rows.append((label, "", "", f"{none}, see below"))
            continue
        best, note = report.found[kind].best, ""
        if isinstance(best, optima.Optimum):
            count = sum(map(len, best.panels))
            note = f"a mixture of {count} panel{'s' * (count > 1)}"
        elif best.starts > 1:
            note = f"best of {best.starts} starts, spread {file.span * best.spread:.2g}"
        numbers = (f"{file.to_reward(value):.6g}" for value in (best.value, best.ceiling))
        rows.append((label, *numbers, note))
    most = f"{file.to_reward(report.any_policy.ceiling):.6g}"
    rows.append(("any policy", "", most, "that keeps the limits on average"))
    note = "keeps all limits" if fixed.feasible else "infeasible: no fixed panel keeps all limits"
    value = f"{file.to_reward(fixed.value):.6g}"
    rows.append((FIXED_SET_LABEL, value, value if fixed.proved else "", note))
    return [
        *format_table(rows),
        f"{FIXED_SET_LABEL}: "
        f"{', '.join(fixed.members) or 'empty, as no panel keeps the upper limits'}",
        *(f"{KIND_LABELS[kind]}: {why}" for kind, why in report.missing.items()),
    ]


def tabulate_optimum_costs(report: OptimumReport) -> list[str]:
    """Expected costs of each optimum beside the bounds, in the unit of the file."""
    if not report.file.limits:
        return ["There are no limits."]
    spent = {KIND_LABELS[kind]: one.costs for kind, one in report.found.items()}
    spent[FIXED_SET_LABEL] = report.fixed.cost
    rows = [("limit", "bound", "", *spent)]
    for j, written in enumerate(report.file.limits):
        unit = written.unit(report.file.problem.draws)
        rows.append(
            (
                f"{written.limit.name} {written.limit.side}",
                f"{written.written:.6g}",
                written.per_words,
                *(f"{x[j] / unit:.4g} {judge_cost(report, j, x[j])}" for x in spent.values()),
            )
        )
    return format_table(rows)


def judge_cost(report: OptimumReport, j: int, cost: float) -> str:
    problem = report.file.problem
    room = problem.signs[j] * (cost - problem.bounds[j]) / problem.peaks[j]
    if room < -REPORTED_COST_SLACK:
        return "violated"
    return "at the bound" if room < REPORTED_COST_SLACK else "kept"


def tabulate_prices(report: OptimumReport) -> list[str]:
    """The shadow price of each bound, and the difference quotients that check it."""
    rows: list[tuple[str, ...]] = []
    for kind, one in report.found.items():
        for written, price in zip(report.file.limits, one.prices, strict=True):
            scale = report.file.span * written.unit(report.file.problem.draws)
            idle = NEGLIGIBLE_GAIN / price.unit
            cells = [
                "" if side is None else f"{scale * side if abs(side) > idle else 0.0:.4g}"
                for side in (price.price, price.below, price.above)
            ]
            name = f"{written.limit.name} {written.limit.side}"
            verdict = "not checked" if price.central is None else price.verdict
            rows.append((KIND_LABELS[kind], name, *cells, verdict))
    if not rows:
        return []
    head = ("shadow price of a bound", "limit", "price", "lower bound", "higher bound", "")
    return [
        *format_table([head, *rows]),
        "The price is what one more unit of the bound earns, by its multiplier; beside it, what "
        "the optimum gains per unit when the bound is lowered or raised by 0.1%.",
    ]


def tabulate_inclusion(report: OptimumReport) -> list[str]:
    """How often each expert is drawn and asked, in each context."""
    lines: list[str] = []
    for x, context in enumerate(report.contexts):
        columns: dict[str, Floats] = {}
        for kind, one in report.found.items():
            if one.q is not None:
                columns[f"{kind}: per draw"] = one.q[x]
            columns[f"{kind}: per request"] = one.inclusion[x]
        often = np.max([one.inclusion[x] for one in report.found.values()], axis=0)
        rows = [(f"in {context}" if context else "expert", *columns)]
        for i in np.argsort(-often, kind="stable"):
            if often[i] >= MIN_SHOWN_INCLUSION:
                cells = (f"{column[i]:.4f}" for column in columns.values())
                rows.append((report.file.problem.experts[i], *cells))
        rare = int((often < MIN_SHOWN_INCLUSION).sum())
        more = [f"and {rare} that are almost never asked"] if rare else []
        lines += [*format_table(rows), *more, ""]
    return lines[:-1]


def tabulate_panels(report: OptimumReport) -> list[str]:
    """The most probable panels of the mixture, in each context."""
    best, lines = report.found["panels"].best, list[str]()
    assert isinstance(best, optima.Optimum)
    for context, panels in zip(report.contexts, best.panels, strict=True):
        rows = [("probability", f"panel in {context}" if context else "panel")]
        rows += [(f"{p:.4f}", ", ".join(panel)) for panel, p in panels[:MAX_SHOWN_PANELS]]
        more = len(panels) - MAX_SHOWN_PANELS
        lines += [*format_table(rows), *([f"and {more} more"] if more > 0 else []), ""]
    return lines[:-1]


def optimum_to_data(report: OptimumReport) -> dict[str, Any]:
    """What `--json` prints, with rewards in the range of the file."""
    file, scenario = report.file, report.scenario
    fixed, most = report.fixed, report.any_policy
    return {
        "file": str(file.path),
        "summary": list_main_numbers(report),
        "scenario": {
            "description": scenario.description,
            "synthetic": scenario.synthetic,
            "questions": scenario.questions,
            "blanks": scenario.blanks,
            "unused": list(scenario.unused),
            "exact": bool(scenario.questions),
            "rounds": report.rounds,
        },
        "contexts": dict(zip(scenario.contexts, report.shares.tolist(), strict=False)),
        "limits_per_context": report.each_context,
        "floor": file.problem.floor if report.floor else 0.0,
        "traffic": file.problem.traffic,
        "experts": list(file.problem.experts),
        "distributions": {
            kind: distribution_to_data(report, one) for kind, one in report.found.items()
        },
        "missing": report.missing,
        "any_policy": {"reward": file.to_reward(most.value), "gap": file.span * most.gap},
        "fixed_panel": {
            "members": list(fixed.members),
            "reward": file.to_reward(fixed.value),
            "feasible": fixed.feasible,
            "proved": fixed.proved,
            "limits": limit_costs_to_data(report, fixed.cost),
        },
    }


def distribution_to_data(report: OptimumReport, one: BestDistribution) -> dict[str, Any]:
    """One distribution; prices per request and in the unit of each bound per request."""
    best, span = one.best, report.file.span
    own: dict[str, Any]
    if isinstance(best, optima.Optimum):
        tables = [[{"members": list(a), "probability": p} for a, p in x] for x in best.panels]
        own = {"panels": tables}
    else:
        own = {"spread": span * best.spread, "starts": best.starts}
        own["draw_probabilities"] = None if one.q is None else one.q.tolist()
    limits = limit_costs_to_data(report, one.costs)
    for limit, price in zip(limits, one.prices, strict=True):
        limit |= {
            "price": span * price.price,
            "price_below": None if price.below is None else span * price.below,
            "price_above": None if price.above is None else span * price.above,
            "step": price.step,
            "verdict": price.verdict,
        }
    return {
        "question": best.question,
        "reward": report.file.to_reward(best.value),
        "gap": span * best.gap,
        **own,
        "limits": limits,
        "inclusion": one.inclusion.tolist(),
    }


def limit_costs_to_data(report: OptimumReport, cost: Floats) -> list[dict[str, Any]]:
    return [
        {
            "limit": written.limit.name,
            "side": written.limit.side,
            "bound": written.limit.bound,
            "per": written.limit.per or "request",
            "bound_per_request": float(report.file.problem.bounds[j]),
            "line": written.line,
            "cost": float(cost[j]),
            "kept": judge_cost(report, j, float(cost[j])) != "violated",
        }
        for j, written in enumerate(report.file.limits)
    ]


def list_optimum_rows(report: OptimumReport) -> Iterator[Sequence[str]]:
    """The distributions as CSV rows with a header; mixtures have no draw probabilities."""
    yield ("kind", "context", "expert", "draw_probability", "inclusion")
    for kind, one in report.found.items():
        for x, context in enumerate(report.contexts):
            for i, expert in enumerate(report.file.problem.experts):
                drawn = "" if one.q is None else repr(float(one.q[x, i]))
                yield (kind, context, expert, drawn, repr(float(one.inclusion[x, i])))
