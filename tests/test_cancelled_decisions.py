"""Cancelled decisions do not count: limits are per decision that was used."""

from numpy.testing import assert_allclose

from bylot import Problem, at_least, at_most
from limit_tables import get_limits
from logged_aggregate import LoggedRouter, decode_decision, make_problem_with_frank

PERIOD = 400


def make_problem() -> Problem:
    """One expert is expensive and good, two are cheap; periods are short."""
    return Problem(
        ["ann", "bob", "eve"],
        {"usd": [5.0, 1.0, 1.5], "junior": [0, 1, 1]},
        [at_most("usd", 3.0), at_least("junior", 0.5)],
        draws=1,
        period=PERIOD,
    )


def make_log_with_cancelled_decisions(rounds: int) -> tuple[LoggedRouter, list[float]]:
    """A log in which every other decision is cancelled, and what the others cost."""
    logged, used = LoggedRouter(make_problem()), []
    for n in range(rounds):
        seq = logged.decide()
        event = decode_decision(logged.log[seq])
        if n % 2:
            logged.append(logged.aggregate.cancel(n, seq))
        else:
            logged.reward(seq, 0.9 if "ann" in event.draws else 0.1)
            used.append(event.spend["usd"])
    return logged, used


def test_averages_are_per_decision_that_was_used() -> None:
    logged, used = make_log_with_cancelled_decisions(300)
    status = logged.aggregate.status()
    assert status.decisions == 300
    cost = status.costs["usd"]
    assert cost.decisions == 150
    assert_allclose(cost.settled, sum(used))
    assert_allclose(cost.stated, sum(used))
    assert_allclose(status.limits[0].mean, sum(used) / 150)
    assert status.period is not None
    assert status.period.played == 150
    current = status.limits[0].current
    assert current is not None
    assert current.mean is not None
    assert_allclose(current.mean, sum(used) / 150)
    assert status.timeline is not None
    assert sum(status.timeline.decisions) == 150
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_every_period_keeps_its_limits_per_decision_that_was_used() -> None:
    _, used = make_log_with_cancelled_decisions(4 * PERIOD)
    periods = [sum(used[i : i + PERIOD]) / PERIOD for i in range(0, len(used), PERIOD)]
    assert len(periods) == 2
    assert max(periods) <= 3.0 + 3 * 4.0 / PERIOD, "and only the last few panels exceed it"
    assert min(periods) > 2.5, "the bound is used"


def test_cancelling_a_decision_of_an_earlier_period_keeps_the_current_one() -> None:
    logged = LoggedRouter(make_problem())
    old = logged.decide(defer=True)
    for _ in range(PERIOD + 9):
        logged.decide()
    state = get_limits(logged.aggregate.core).state
    before = state.ledgers["spent"].copy(), state.clock["left"].copy()
    logged.append(logged.aggregate.cancel(9, old))
    assert (before[0] == state.ledgers["spent"]).all()
    assert before[1] == state.clock["left"]
    new = logged.decide()
    logged.append(logged.aggregate.cancel(9, new))
    assert_allclose(state.ledgers["spent"], before[0], atol=1e-12)
    assert before[1] == state.clock["left"]


def test_cancelling_a_decision_from_before_an_edit_gives_its_round_back() -> None:
    logged = LoggedRouter()
    old = logged.decide(defer=True)
    logged.edit(make_problem_with_frank(3.0))
    for _ in range(10):
        logged.decide()
    state = get_limits(logged.aggregate.core).state
    spent, left = state.ledgers["spent"].copy(), int(state.clock["left"][0])
    cost = decode_decision(logged.log[old]).spend["usd"]
    logged.append(logged.aggregate.cancel(9, old))
    assert state.clock["left"][0] == left + 1
    assert_allclose(spent[0] - state.ledgers["spent"][0], min(cost, 3.0) / 3.0)
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
