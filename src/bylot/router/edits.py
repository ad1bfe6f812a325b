"""Edits of a running router: another problem, or other traffic than its policy was bound for."""

from typing import TYPE_CHECKING, Any

from bylot.errors import PolicyError
from bylot.limits.book import Tables, freeze_tables
from bylot.limits.keys import continue_keys
from bylot.limits.migrate import begin_windows
from bylot.numerics.jit import announce_compilation
from bylot.policies.base import BoundPolicy
from bylot.policies.binding import BoundRules, bind_policy, migrate_policy
from bylot.policies.registry import check_kept_limits
from bylot.policies.retargeting import is_check_due, retarget
from bylot.policies.validation import check_run_config
from bylot.problem import Problem
from bylot.problem.change import has_same_pool

if TYPE_CHECKING:
    from bylot.router.core import RouterCore


def change_problem(
    core: "RouterCore",
    problem: Problem,
    rules: BoundRules | None = None,
    *,
    at: int = 0,
    tables: Tables | None = None,
) -> bool:
    """Let a router continue under another problem with all that it has learned.

    Return whether the pool is the same. Limits that cannot be kept raise an error, and nothing was
    changed.

    rules:  policy and limits bound to this problem, if that was done before
    at:     the time, for windows of the calendar
    tables: of windows, in a replay: as they were when the problem was changed
    """
    run = core.run
    book = core.book
    check_run_config(problem, run.seed, run.horizon, (run.low, run.high), run.feedback)
    book.filled = None
    old = core.problem
    if problem == old:
        return True
    try:
        check_kept_limits(core.policy, problem)
        if rules is None:
            rules = bind_policy(core.policy, problem, run.horizon, run.feedback)
    except PolicyError as error:
        raise error.for_running_router() from None
    before = core.bound._replace(state=shrink_state(core, problem.size))
    with announce_compilation(core.policy.name):
        found = migrate_policy(core.policy, before, problem, *rules)
    if found.limits is not None and found.limits.follows_clock and book.at > 0:
        now = max(at, book.at)
        begun = begin_windows(old, problem, book.kept.state, found.limits, now, tables)
        book.filled = freeze_tables(begun)
        book.at = now
    continue_with(core, found, at, edited=True)
    return has_same_pool(old, problem)


def rebind_for_traffic(core: "RouterCore") -> None:
    """Bind the policy again after some decisions if the traffic is not what it was bound for."""
    if is_check_due(core.t):
        follow_traffic(core)


def follow_traffic(core: "RouterCore") -> None:
    """Bind the policy again if the traffic is not what it was bound for."""
    found = retarget(core.policy, core.bound, core.run.horizon, core.run.feedback)
    if found is not None:
        core.book.filled = None
        continue_with(core, found, 0, edited=False)


def continue_with(core: "RouterCore", found: BoundPolicy, at: int, *, edited: bool) -> None:
    """Let a router continue with a policy that was migrated to another problem."""
    book = core.book
    period = core.sums.find_period(book.played_rounds)
    visits = core.count_visits()
    priced = dict(zip(core.problem.limits, core.prices, strict=True))
    book.keyed = continue_keys(book.keyed, found.problem, max(at, book.at), core.t)
    core.sums.rename(found.problem.costs)
    core.bind(found)
    pairs = zip(found.problem.limits, core.prices, strict=True)
    core.prices = [priced.get(limit, price) for limit, price in pairs]
    core.skipped = (core.state.visits[: visits.size] - visits).tolist()
    core.sums.continue_period(period, book.played_rounds, edited=edited)


def keep_traffic(core: "RouterCore", problem: Problem) -> Problem:
    """Return the problem at the traffic that was learned, if it has limits of the calendar."""
    learned = core.problem.traffic
    if learned is None or not isinstance(problem, Problem):
        return problem
    return problem.at_traffic(learned)


def shrink_state(core: "RouterCore", size: int) -> Any:
    """Return the state without spare rows, if they would not fit with this number of experts."""
    rows = len(core.state.visits)
    used = len(core.contexts)
    capacity = min(rows, core.policy.max_contexts(size))
    if capacity < max(1, used):
        raise PolicyError(
            f"with {size:,} experts the policy has capacity for {capacity:,} contexts, and the "
            f"router has {used:,}",
            remedy="add fewer experts, or create a new router with 'distinct'",
        )
    return core.state if capacity == rows else core.resize_state(capacity)
