"""The status of a router core: what its limits, costs, tenants and distributions are now."""

import math

import numpy as np
from msgspec import structs

from bylot.limits import report as limit_report
from bylot.limits.book import ALL_AVAILABLE
from bylot.limits.keys import TenantsSummary
from bylot.limits.rows import compute_row_units
from bylot.limits.status import CostStatus, make_limit_status
from bylot.limits.verdict import AVERAGE_TOLERANCE, PeriodPosition
from bylot.limits.window_status import WindowStatus, measure_cheapest_panel, measure_window
from bylot.numerics.jit import Bools
from bylot.router import status as statuses
from bylot.router.core import RouterCore

MAX_STATUS_CONTEXTS = 12  # contexts whose distributions a status contains, the most visited


def report_status(
    core: RouterCore, available: Bools = ALL_AVAILABLE, waiting: int = 0, at: int = 0
) -> statuses.RouterStatus:
    """The status at this time, with the distribution over the available experts."""
    problem, totals, t = core.problem, core.totals, core.t
    rewards, sums = int(totals.rewards[0]), (totals.spent.tolist(), totals.expected.tolist())
    costs = {}
    for name, spent, expected in zip(problem.costs, *sums, strict=True):
        costs[name] = CostStatus(spent, expected, spent, core.sums.count_decisions(name))
    span = core.run.high - core.run.low
    prices = [
        average.summarize(price, span)
        for average, price in zip(core.prices, core.read_prices(), strict=True)
    ]
    core.book.look_at_everybody()
    now = limit_report.report_budget(problem, core.book.tables)
    limits = tuple(
        make_limit_status(
            limit,
            costs[limit.name],
            price,
            now and measure_period(core, now, j),
            *measure_limit_window(core, j, costs[limit.name], max(at, core.book.at), available),
            summarize_tenants(core, j, max(at, core.book.at)),
            find_dear_experts(core, j),
        )
        for j, (limit, price) in enumerate(zip(problem.limits, prices, strict=True))
    )
    q = core.average_distribution(available).tolist()
    return statuses.RouterStatus(
        decisions=t,
        rewards=rewards,
        waiting=waiting,
        contexts=len(core.contexts),
        max_contexts=core.count_capacity(),
        mean_reward=float(totals.total[0]) / rewards if rewards else None,
        kept=all(limit.kept for limit in limits),
        limits=limits,
        costs=costs,
        q=dict(zip(problem.experts, q, strict=True)),
        effective_experts=statuses.count_effective_experts(q),
        multinomial=core.policy.draws_iid,
        whole=core.policy.draws_sets,
        period=now and statuses.PeriodStatus(now.period, now.played, now.replaced),
        feedback=core.run.feedback,
        uses_feedback=core.run.feedback in core.policy.feedback,
        random_panels=predict_random_panels(core),
    ).judge()


def predict_random_panels(core: RouterCore) -> float | None:
    """The reward of random panels in the contexts visited most, by the policy's model, if any."""
    visits = core.count_visits()
    most = np.argsort(-visits, kind="stable")[:MAX_STATUS_CONTEXTS].tolist()
    found = [core.policy.predict_random_panels(core.rule, core.state, x) for x in most]
    if None in found or not visits.any():  # none before the first decision, also after a log
        return None
    mean = np.average(np.array(found, np.float64), weights=visits[most])
    return float(core.run.low + (core.run.high - core.run.low) * mean)


def measure_limit_window(
    core: RouterCore, j: int, cost: CostStatus, at: int, available: Bools
) -> tuple[WindowStatus | None, bool]:
    """Limit j in its window of the calendar, and whether that is spent."""
    if core.book.tables is None or core.book.at == 0:
        return None, False
    usual = cost.settled / max(cost.decisions, 1)
    found = measure_window(core.problem, core.book.tables, j, at, usual)
    return found, found is not None and core.book.is_spent(j, at, available)


def summarize_tenants(core: RouterCore, j: int, at: int) -> TenantsSummary | None:
    """Return all keys under limit j at this time, if it is for each of them."""
    problem = core.problem
    if core.book.tables is None or core.book.keyed is None or j not in core.book.keyed.limits:
        return None
    cheapest = measure_cheapest_panel(problem, core.book.tables, j, problem.smallest_panel)
    return core.book.keyed.summarize(j, at, cheapest)


def find_dear_experts(core: RouterCore, j: int) -> tuple[str, ...]:
    """The experts whose calls cost more on average than the most that limit j counts on."""
    if core.book.tables is None or not core.book.tables.rule.rows["certain"][j]:
        return ()
    most = core.book.tables.rule.worst[j] * (1.0 + AVERAGE_TOLERANCE)
    over = core.book.tables.state.means[j] > most
    return tuple(np.array(core.problem.experts)[over].tolist())


def measure_period(core: RouterCore, report: limit_report.BudgetReport, j: int) -> PeriodPosition:
    """Limit j in the current period, as measured and as it counts.

    After a change of the problem they differ: what counts is the bound + over / decisions,
    where `over` was spent beyond the bounds that the decisions were made under.
    """
    now = report.limits[j]
    limit = core.problem.limits[j]
    offset = core.t - report.played
    if not limit.averages_all:
        return PeriodPosition(now, now.mean, 0, False)
    contested = any(not other.within_reach for other in report.limits)  # by another, if not by j
    if not core.sums.find_period(core.book.played_rounds).edited:
        final = core.run.horizon is not None and report.played == 0 < core.t
        end = offset + (0 if final else report.period)
        return PeriodPosition(now, now.mean, end, final, contested)
    n, spent = core.sums.before.get(limit.name, (0, 0.0))
    decisions = core.sums.count_decisions(limit.name) - n
    measured = None
    counted = None
    if decisions > 0 and core.book.tables is not None:
        rule, state = core.book.tables
        over = state.ledgers["spent"][j] - report.played * rule.rows["bound"][j]
        unit = -limit.sign * compute_row_units(core.problem)[j]
        measured = (core.sums.list_spent()[limit.name] - spent) / decisions
        counted = float(limit.bound + over * unit / decisions)
        counted = measured if math.isclose(measured, counted) else counted
    now = structs.replace(now, mean=measured)
    return PeriodPosition(now, counted, offset + report.period, False, contested)


def list_distributions(
    core: RouterCore, available: Bools
) -> tuple[statuses.ContextDistribution, ...]:
    """The distributions over the available experts in the contexts visited most."""
    visits, labels = core.count_visits(), list(core.contexts)
    most = np.argsort(-visits, kind="stable")[:MAX_STATUS_CONTEXTS].tolist()
    found = []
    for x in most:
        q = core.read_distribution(x, available)
        found.append(statuses.ContextDistribution(labels[x], int(visits[x]), q.tolist()))
    return tuple(found)
