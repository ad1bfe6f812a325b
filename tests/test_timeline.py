"""The timeline: a history of any length in a few points."""

from hypothesis import given
from hypothesis import strategies as st

from bylot.router.timeline import TIMELINE_BINS, Timeline


@given(st.integers(1, 5 * TIMELINE_BINS), st.data())
def test_bins_have_the_sums_of_their_decisions(n: int, data: st.DataObject) -> None:
    timeline = Timeline({"usd": []})
    rewarded: list[tuple[int, int]] = []
    for t in range(n):
        timeline.add_decision(t, 1000 + t, {"usd": t % 7})
        if t % 3 == 0:
            rewarded.append((data.draw(st.integers(0, t)), t % 5) if t < 30 else (t // 2, t % 5))
            timeline.add_reward(*map(int, rewarded[-1]))
            timeline.add_cost(rewarded[-1][0], {"usd": 2})
    points, width = timeline.points(n), 1 << timeline.power
    assert len(timeline.started) == -(-n // width) <= TIMELINE_BINS
    assert 2 * len(timeline.started) > TIMELINE_BINS or width == 1, (
        "bins are merged only if necessary"
    )
    for i in range(len(timeline.started)):
        inside = range(i * width, min(n, (i + 1) * width))
        rewards = [value for t, value in rewarded if t in inside]
        assert points.started[i] == 1000 + inside[0]
        assert points.decisions[i] == len(inside)
        assert points.rewards[i] == len(rewards)
        assert points.total[i] == sum(rewards)
        assert points.spent["usd"][i] == sum(t % 7 for t in inside) + 2 * len(rewards)
