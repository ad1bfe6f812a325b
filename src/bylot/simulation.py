"""Playing a policy in an environment: one compiled loop over the very steps the router runs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.counted_requests import check_context_names, fill_counting_limits, mark_counted
from bylot.environments import NO_DELAY, Environment, RewardDelay, Rounds
from bylot.environments.base import FIRST_ENVIRONMENT_STREAM
from bylot.environments.call_costs import (
    CallCosts,
    CallCostTable,
    draw_call_costs,
    has_own_costs,
    make_declared_costs,
    settle_simulated_calls,
)
from bylot.environments.delays import NEVER_DUE
from bylot.errors import ValuesError
from bylot.limits.forecast import HOUR_US
from bylot.limits.request import Ticket, admit, find_spent, note_refused, open_request, point_to
from bylot.limits.windows import check_times
from bylot.numerics.jit import Bools, Floats, Ints, announce_compilation, jit, jit_entry, jit_inline
from bylot.numerics.philox import LoopKey, RngKey, draw_uniform
from bylot.numerics.sampling import add_panel_cost, is_first_draw
from bylot.numerics.scratch_arrays import borrow_row, no_bools, no_floats, scratch_floats
from bylot.numerics.sum_max import sum_max
from bylot.policies import Auto, PlainPolicy, Policy, find_policy, resolve_policy
from bylot.policies.base import (
    NO_WINNER,
    BoundPolicy,
    Feedback,
    choose_runner,
    compute_distribution,
    learn,
    note_played,
    propose,
)
from bylot.policies.binding import bind_policy, start_policy
from bylot.policies.compiled_handle import scale_scores
from bylot.policies.registry import check_panel_size
from bylot.policies.retargeting import fill_due_tables, find_next_check, find_stop, retarget
from bylot.policies.validation import (
    FeedbackKind,
    check_at_least_one,
    check_run_config,
    is_reward_in_range,
)
from bylot.problem import Problem
from bylot.trace import PlayRecord, Trace, make_play_record

CHUNK_ROUNDS = 4096  # rounds of values held in memory at a time
WINNER_STREAM = FIRST_ENVIRONMENT_STREAM + 3  # who won, of several with the best score


class Arrivals(NamedTuple):
    """When requests arrive, in microseconds since 1970; empty if no limit asks for it."""

    times: Ints
    until: int  # the decision before which to stop, as the policy may be bound again
    refused: Ints  # (2,) the hour of those refused since the last decision, and how many there were


class LateRewards(NamedTuple):
    """When each reward arrives, and what the record lacks of the tickets of those that are late.

    The ticket of decision n is in slot n modulo the number of slots, one more than the longest lag.
    """

    due: Ints  # (T,) the round after whose decision each reward arrives
    order: Ints  # rounds in the order in which their rewards arrive, without lost ones
    arrived: Ints  # one element: how many of these did
    inclusion: Floats  # (slots, K)
    sizes: Ints  # (slots, 2) how many draw and inclusion probabilities the ticket has
    numbers: Floats  # (slots, 2) share, weight


@jit_inline
def store_ticket(late: LateRewards, ticket: Ticket) -> None:
    """Keep what a late reward will need; arrays are copied, as a state may write into its own."""
    slot = ticket.t % late.inclusion.shape[0]
    late.sizes[slot, 0] = ticket.draw_probabilities.size
    late.sizes[slot, 1] = ticket.inclusion.size
    for i in range(ticket.inclusion.size):
        late.inclusion[slot, i] = ticket.inclusion[i]
    late.numbers[slot, 0] = ticket.share
    late.numbers[slot, 1] = ticket.weight


@jit_inline
def load_ticket(
    late: LateRewards, record: PlayRecord, t: int, number: int, available: Bools
) -> Ticket:
    """Return the ticket of round t and decision `number`, as it was; its arrays are those of the
    slot, until this is reused, and of the record.
    """
    slot = number % late.inclusion.shape[0]
    return Ticket(
        number,
        record.contexts[t],
        borrow_row(record.draws, t),
        borrow_row(record.draw_probabilities, t)[: late.sizes[slot, 0]],
        borrow_row(late.inclusion, slot)[: late.sizes[slot, 1]],
        available,
        late.numbers[slot, 0],
        record.feasible[t],
        record.propensities[t],
        late.numbers[slot, 1],
        record.replaced[t],
    )


@jit
def fill_member_scores(out: Floats, values: Floats, draws: Ints) -> None:
    """Write what each draw's expert would be worth alone: its value summed over the dimensions."""
    for j in range(draws.size):
        total = 0.0
        for k in range(values.shape[0]):
            total += values[k, draws[j]]
        out[j] = total


@jit
def find_winner(values: Floats, draws: Ints, low: float, rng: RngKey) -> int:
    """The member with the best score, a random one if there are several; -1 if no score is above
    the lowest reward.
    """
    scores = scratch_floats(draws.size)
    fill_member_scores(scores, values, draws)
    best, count = low, 0
    for j in range(draws.size):
        if scores[j] > best:
            best, count = scores[j], 1
        elif scores[j] == best and scores[j] > low and is_first_draw(draws, j):
            count += 1
    if count == 0:
        return NO_WINNER
    place = int(draw_uniform(rng, WINNER_STREAM) * count)
    for j in range(draws.size):
        if scores[j] == best and is_first_draw(draws, j):
            if place == 0:
                return int(draws[j])
            place -= 1
    return NO_WINNER


@jit_entry
def play_rounds(
    rule: Any,
    state: Any,
    limits: Any,
    rows: Floats,
    values: Floats,
    contexts: Ints,
    seed: int,
    start: int,
    low: float,
    span: float,
    late: LateRewards,
    calls: CallCostTable,
    arrivals: Arrivals,
    record: PlayRecord,
) -> int:
    """Play rounds start, start + 1, ... on the given values; returns how many were played.

    The policy learns (r - low) / span when a reward arrives; rewards that arrive together in the
    order of their decisions. With times, windows of the calendar end, and a request for which no
    budget leaves a panel is refused: it earns and costs nothing.
    """
    everyone, unknown = no_bools(), no_floats()
    # Two or three at a time: numba makes a tuple of more, and counts the references of its arrays.
    draws, q, rewards = record.draws, record.draw_probabilities, record.rewards
    spend, feasible, visited = record.spend, record.feasible, record.contexts
    propensities, replaced = record.propensities, record.replaced
    distributions, scores = record.distributions, record.scores
    winners, numbers = record.winners, record.numbers
    # Policies write into row t of both (`scratch_arrays.make_draws`): C order, as many columns as
    # there are draws.
    draws_at, q_at = draws.ctypes.data, q.ctypes.data
    draws_row, q_row = draws.strides[0], q.strides[0]
    due, order, arrived, times = late.due, late.order, late.arrived[0], arrivals.times
    for n in range(values.shape[0]):
        t = start + n
        context = contexts[n]
        number = t
        at = 0
        if times.size > 0:
            at = times[n]
            number = find_number(numbers, t)
            if find_spent(limits, context, at, everyone) >= 0:
                note_refusal(limits, arrivals.refused, at)
                numbers[t], rewards[t], visited[t] = -1 - number, low, context
                feasible[t] = False
                draws[t, :] = -1
                if scores.shape[0] > 0:
                    scores[t, :] = low
                if winners.size > 0:
                    winners[t] = NO_WINNER
                if distributions.shape[0] > 0:
                    distributions[t, :] = 0.0
                continue
            count_refusals(limits, arrivals.refused)
            if number == arrivals.until:
                late.arrived[0] = arrived
                return n
            numbers[t] = number
        key: Any = LoopKey(seed, number, draws_at + t * draws_row, q_at + t * q_row)
        view = open_request(limits, context, at, everyone)
        ticket = admit(limits, view, propose(rule, state, view, key), number)
        note_played(rule, state, view, ticket)
        rewards[t] = sum_max(values[n], ticket.draws)
        if scores.shape[0] > 0:
            fill_member_scores(scores[t], values[n], ticket.draws)
        if winners.size > 0:
            winners[t] = find_winner(values[n], ticket.draws, low, RngKey(seed, t))
        if due[t] != t:
            store_ticket(late, ticket)
        while arrived < order.size and due[order[arrived]] <= t:
            then = order[arrived]
            made = numbers[then] if times.size > 0 else then
            if made < 0:
                arrived += 1
                continue
            rewarded = ticket if then == t else load_ticket(late, record, then, made, everyone)
            known = scale_scores(scores[then], low, span) if scores.shape[0] > 0 else unknown
            winner = winners[then] if winners.size > 0 else NO_WINNER
            if calls.reported < 2:
                settle_simulated_calls(limits, rewarded, rows, calls, RngKey(seed, then))
            feedback = Feedback((rewards[then] - low) / span, known, winner)
            learn(rule, state, rewarded, feedback)
            arrived += 1
        for j in range(ticket.draws.size):  # nothing new of policies that draw with `make_draws`
            draws[t, j] = ticket.draws[j]
        for j in range(ticket.draw_probabilities.size):
            q[t, j] = ticket.draw_probabilities[j]
        if has_own_costs(calls):
            costs = draw_call_costs(calls, ticket.draws, RngKey(seed, t))
            for j in range(costs.shape[0]):
                spend[t, j] = costs[j].sum()
        else:
            add_panel_cost(spend[t], rows, ticket.draws)
        feasible[t] = ticket.feasible
        visited[t] = context
        propensities[t] = ticket.propensity
        replaced[t] = ticket.replaced
        if distributions.shape[0] > 0:
            now = compute_distribution(rule, state, view)
            for i in range(now.size):
                distributions[t, i] = now[i]
    late.arrived[0] = arrived
    return int(values.shape[0])


@jit
def note_refusal(limits: Any, refused: Ints, at: int) -> None:
    """Note that a request was refused; as in a router, it counts before the next decision."""
    hour = at - at % HOUR_US
    if hour != refused[0]:
        count_refusals(limits, refused)
    refused[0] = hour
    refused[1] += 1


@jit
def count_refusals(limits: Any, refused: Ints) -> None:
    """Count the requests that were refused since the last decision as traffic of their hour."""
    if refused[1] > 0:
        note_refused(limits, refused[0], refused[1])
        refused[1] = 0


@jit
def find_number(numbers: Ints, t: int) -> int:
    """The number of the next decision, before round t; refused ones are stored as -1 - number."""
    if t == 0:
        return 0
    before = int(numbers[t - 1])
    return before + 1 if before >= 0 else -1 - before


def simulate(
    problem: Problem,
    environment: Environment,
    policy: str | Policy | Auto | PlainPolicy = "auto",
    *,
    rounds: int,
    seed: int = 0,
    horizon: int | None = None,
    rewards: tuple[float, float] = (0.0, 1.0),
    feedback: FeedbackKind = "panel",
    guard: bool | None = None,
    late: RewardDelay = NO_DELAY,
    calls: CallCosts | None = None,
    times: Ints | None = None,
    context_names: Sequence[str] | None = None,
    keep_distributions: bool = True,
) -> Trace:
    """Play a policy for some rounds, exactly as a `Router` with the same arguments would.

    Parameters
    ----------
    problem : Problem
        Experts, costs, limits and draws per request.
    environment : Environment
        The contexts and values of the rounds, such as `bylot.environments.Noisy`.
    policy : str or Policy
        The name or the settings of a policy, or an object in plain Python: `policies.PlainPolicy`.
    rounds, seed : int
        The number of rounds; the seed of the environment and of the policy.
    horizon : int, optional
        The number of rounds that the policy expects, as Theorem 1 requires; None if unknown.
    rewards : tuple of float
        The range of rewards, which is mapped to [0, 1] for learning.
    feedback : str
        What is reported: 'panel', the reward; 'members', also what each member would be worth
        alone; 'winner', also the member that is worth most alone. A policy that ignores this
        learns from the reward: see `Trace.uses_feedback`.
    guard : bool, optional
        Whether to replace panels after which the limits could not be kept; by default as the policy
        says.
    late : RewardDelay
        When rewards arrive, such as ``RewardDelay(lag=200, lost=0.1)``: up to 200 rounds late, one
        in ten never. The trace contains all of them.
    calls : CallCosts, optional
        What calls really cost, and what is reported of that with the rewards; by default they cost
        what is declared, and nothing is reported.
    times : array_like of int, optional
        When each request arrives, in microseconds since 1970, for limits of the calendar: such as
        ``Traffic("daily", per_day=2000).arrivals(rounds, seed)``. All requests are of one tenant:
        limits for each tenant count all of them.
    context_names : sequence of str, optional
        The names of contexts 0, 1, ..., by which limits with `where` find theirs; by default "0",
        "1", and so on.
    keep_distributions : bool
        Whether to keep the (rounds, K) distributions played, which `score` needs.

    Returns
    -------
    Trace
        What was drawn, earned and spent in each round.

    Raises
    ------
    PolicyError
        If the policy cannot keep the limits, or an argument is invalid.
    ValuesError
        If the environment does not fit the problem.

    Examples
    --------
    >>> from bylot.environments import Noisy
    >>> from bylot.problem import at_most
    >>> pool = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, [at_most("usd", 4)], draws=2)
    >>> simulate(pool, Noisy([[0.2, 0.5, 0.9]]), "random", rounds=100).rewards.shape
    (100,)
    """
    terms = check_run_config(problem, seed, horizon, rewards, feedback)
    check_at_least_one("rounds", rounds)
    check_environment(environment, problem)
    check_panel_size(find_policy(policy), problem)
    settings = resolve_policy(policy, problem, feedback, guard)
    with announce_compilation(settings.name):
        rule, limits = bind_policy(settings, problem, horizon, feedback)
    names = check_context_names(problem, environment.contexts, context_names)
    bound = start_policy(settings, problem, rule, limits, environment.contexts)
    fill_counting_limits(bound, names)
    record = make_play_record(problem, rounds, keep_distributions, feedback)
    arrivals = check_times(problem, times, rounds)
    if arrivals.size:
        record = record._replace(numbers=np.zeros(rounds, np.int64))
    mail = make_late_rewards(problem, late, rounds, seed)
    table = bind_call_costs(calls, bound)
    rows = np.array(problem.rows)  # writable: a read-only array would compile a second loop
    low, high, start = terms.low, terms.high, 0
    checked = 0  # the last decision before which the traffic was looked at
    refused = np.zeros(2, np.int64)
    while start < rounds:
        stop, until = min((start // CHUNK_ROUNDS + 1) * CHUNK_ROUNDS, rounds), rounds
        if arrivals.size:
            fill_due_tables(bound, int(arrivals[start]))
            stop, until = min(stop, find_stop(bound, arrivals, start)), find_next_check(checked)
        values, contexts = read_rounds(environment, start, stop, seed)
        chunk = rows, values, contexts, seed, start, low, high - low, mail, table
        with announce_compilation(settings.name):
            when = Arrivals(arrivals[start:stop], until, refused)
            play = choose_runner(play_rounds, rule)
            pointer = point_to(bound.limits, problem)
            stop = start + play(bound.rule, bound.state, pointer, *chunk, when, record)
        if stop < start + len(values):  # before the next check
            checked = until
            bound = retarget(settings, bound, terms.horizon, terms.feedback) or bound
            fill_counting_limits(bound, names)
            table = bind_call_costs(calls, bound)  # in the units of its rows
        check_range("rewards", record.rewards[start:stop], low, high)
        check_range("scores of members", record.scores[start:stop], low, high)
        start = stop
    record.spend[~mark_counted(problem, record.contexts, names)] = 0.0
    return Trace(problem, settings, seed, horizon, (low, high), record, feedback, names)


def bind_call_costs(calls: CallCosts | None, bound: BoundPolicy) -> CallCostTable:
    """Return what calls cost under limits; nothing is reported where none are kept."""
    problem = bound.problem
    table = make_declared_costs(problem) if calls is None else calls.bind(problem)
    return table._replace(reported=2) if bound.limits is None else table


def check_range(what: str, values: Floats, low: float, high: float) -> None:
    """Raise if rewards or scores are not in their range."""
    ends = [float(end(values)) for end in (np.min, np.max)] if values.size else []  # NaN: both
    if not all(is_reward_in_range(one, low, high) for one in ends):
        came, span = f"{what} from {ends[0]:.4g} to {ends[1]:.4g}", f"[{low:g}, {high:g}]"
        raise ValuesError(
            f"{came} came up, and the range is {span}",
            remedy="scale the values, or declare rewards=(low, high)",
        )


def make_late_rewards(problem: Problem, late: RewardDelay, rounds: int, seed: int) -> LateRewards:
    due = late.due(rounds, seed)
    slots = min(late.lag, rounds) + 1
    order = np.argsort(due, kind="stable")
    return LateRewards(
        due=due,
        order=order[due[order] < NEVER_DUE],
        arrived=np.zeros(1, np.int64),
        inclusion=np.zeros((slots, problem.size)),
        sizes=np.zeros((slots, 2), np.int64),
        numbers=np.zeros((slots, 2)),
    )


def check_environment(environment: Environment, problem: Problem) -> None:
    """Raise if it is not an environment for this pool."""
    if not hasattr(environment, "rounds"):
        raise ValuesError(
            f"a {type(environment).__name__} is no environment",
            remedy="wrap values in bylot.environments.Given",
        )
    if environment.shape[1] != problem.size:
        raise ValuesError(
            f"the environment has {environment.shape[1]} experts and the problem {problem.size}",
            remedy="give values with one column for each expert",
        )


def read_rounds(environment: Environment, start: int, stop: int, seed: int) -> Rounds:
    """Rounds of an environment, of the shape it declared: compiled code will not look again."""
    values, contexts = environment.rounds(start, stop, seed)
    values = np.ascontiguousarray(values, dtype=np.float64)
    contexts = np.ascontiguousarray(contexts, dtype=np.int64)
    shape = (stop - start, *environment.shape)
    declared: object = shape
    if values.shape != shape or contexts.shape != shape[:1]:
        came = f"values of shape {values.shape} and contexts of shape {contexts.shape}"
    elif contexts.min() < 0 or contexts.max() >= environment.contexts:
        came, declared = f"contexts from {contexts.min()} to {contexts.max()}", environment.contexts
    else:
        return Rounds(values, contexts)
    raise ValuesError(
        f"rounds {start} to {stop}: {came} came, and the environment had declared {declared}"
    )
