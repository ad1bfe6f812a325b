"""The course: a whole history in few points, whatever its length."""

from hypothesis import given
from hypothesis import strategies as st

from bylot.eventlog.timeline import TIMELINE_BINS, Timeline


@given(st.integers(1, 5 * TIMELINE_BINS), st.data())
def test_bins_hold_exactly_what_happened_to_their_decisions(n: int, data: st.DataObject) -> None:
    course = Timeline({"usd": []})
    told: list[tuple[int, int]] = []
    for t in range(n):
        course.add_decision(t, 1000 + t, {"usd": t % 7})
        if t % 3 == 0:
            told.append((data.draw(st.integers(0, t)), t % 5) if t < 30 else (t // 2, t % 5))
            course.add_reward(*map(int, told[-1]))
            course.add_cost(told[-1][0], {"usd": 2})
    points, width = course.points(n), 1 << course.power
    assert len(course.started) == -(-n // width) <= TIMELINE_BINS
    assert 2 * len(course.started) > TIMELINE_BINS or width == 1, "no more is merged than must be"
    for i in range(len(course.started)):
        inside = range(i * width, min(n, (i + 1) * width))
        rewards = [value for t, value in told if t in inside]
        assert points.started[i] == 1000 + inside[0]
        assert points.decisions[i] == len(inside)
        assert points.rewards[i] == len(rewards)
        assert points.total[i] == sum(rewards)
        assert points.spent["usd"][i] == sum(t % 7 for t in inside) + 2 * len(rewards)
