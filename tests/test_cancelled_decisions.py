"""Decisions that were never used: limits are per decision that was."""

import pytest
from numpy.testing import assert_allclose

from bylot import Problem, at_least, at_most
from logged_aggregate import Diary, decided, with_frank

PERIOD = 400


def pair() -> Problem:
    """One is dear and good, two are cheap; periods are short."""
    return Problem(
        ["ann", "bob", "eve"],
        {"usd": [5.0, 1.0, 1.5], "junior": [0, 1, 1]},
        [at_most("usd", 3.0), at_least("junior", 0.5)],
        draws=1,
        period=PERIOD,
    )


def half_used(rounds: int) -> tuple[Diary, list[float]]:
    """A log in which every other decision is cancelled, and what the others cost."""
    diary, used = Diary(pair()), []
    for n in range(rounds):
        seq = diary.decide()
        line = decided(diary.log[seq])
        if n % 2:
            diary.note(diary.fold.cancel(n, seq))
        else:
            diary.reward(seq, 0.9 if "ann" in line.draws else 0.1)
            used.append(line.spend["usd"])
    return diary, used


def test_averages_are_per_decision_that_was_used() -> None:
    diary, used = half_used(300)
    status = diary.fold.status()
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
    assert diary.replayed().fingerprint() == diary.fold.fingerprint()


def test_every_period_keeps_its_limits_per_decision_that_was_used() -> None:
    _, used = half_used(4 * PERIOD)
    periods = [sum(used[i : i + PERIOD]) / PERIOD for i in range(0, len(used), PERIOD)]
    assert len(periods) == 2
    assert max(periods) <= 3.0 + 3 * 4.0 / PERIOD, "and no more than the last few panels beyond"
    assert min(periods) > 2.5, "the bound is made use of"


@pytest.mark.parametrize("edit", [False, True])
def test_one_of_an_earlier_period_leaves_the_current_one_as_it_is(edit: bool) -> None:
    diary = Diary(pair() if not edit else None)
    old = diary.decide(defer=True)
    if edit:
        diary.edit(with_frank(3.0))
    for _ in range(10 if edit else PERIOD + 9):
        diary.decide()
    account = diary.fold.core.state.budget
    before = account.spent.copy(), account.left.copy()
    diary.note(diary.fold.cancel(9, old))
    assert (before[0] == account.spent).all()
    assert before[1] == account.left
    new = diary.decide()
    diary.note(diary.fold.cancel(9, new))
    assert_allclose(account.spent, before[0], atol=1e-12)
    assert before[1] == account.left
