"""Open decisions: dropped when they are old, closed at their deadline, in order."""

from hypothesis import given
from hypothesis import strategies as st

from bylot.router.changes import RewardReceived
from bylot.router.open_decisions import (
    NO_DEADLINE,
    NOT_STARTED,
    OpenDecision,
    OpenDecisions,
    index_reports,
)

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([NO_DEADLINE, NOT_STARTED, 5, 9, 14, 300])),
    st.tuples(st.just("start wait"), st.integers(0, 30)),
    st.tuples(st.just("close"), st.integers(0, 30)),
    st.tuples(st.just("drop"), st.integers(0, 30)),
    st.just(("reload", 0)),
)


def read_nothing(place: int) -> OpenDecision:
    """Say that no decision is anywhere else."""
    raise LookupError(place)


@given(st.lists(ACTIONS, max_size=200))
def test_open_decisions_behave_like_a_dictionary(actions: list[tuple[str, int]]) -> None:
    open_decisions, reference = (
        OpenDecisions(read_nothing),
        dict[int, tuple[int, int]](),
    )  # seq: t, due
    for n, (verb, number) in enumerate(actions):
        seq = sorted(reference)[number % len(reference)] if reference else None
        if verb == "add":
            open_decisions.add(2 * n, OpenDecision(n, number))
            reference[2 * n] = n, number
        elif verb == "start wait" and seq is not None and reference[seq][1] == NOT_STARTED:
            open_decisions.start_wait(seq, 7)
            reference[seq] = reference[seq][0], 7
        elif verb == "close" and seq is not None:
            open_decisions.close(seq)
            del reference[seq]
        elif verb == "drop":
            dropped = [one for one in reference.items() if one[1][0] < number]
            assert [decision.t for decision in open_decisions.drop_before(number)] == sorted(
                t for _, (t, _) in dropped
            )
            reference = {seq: one for seq, one in reference.items() if one[0] >= number}
        elif verb == "reload":
            columns = open_decisions.to_columns()
            open_decisions = OpenDecisions(read_nothing)
            open_decisions.fill_from_columns(columns)
    assert {seq: (decision.t, decision.due) for seq, decision in open_decisions} == reference
    dues = sorted((due, seq) for seq, (_, due) in reference.items() if due >= 0)
    for due, seq in dues:
        assert open_decisions.first_due() == (due, seq)
        open_decisions.close(seq)
    assert open_decisions.first_due() is None


def test_deadlines_of_closed_decisions_are_removed() -> None:
    open_decisions = OpenDecisions(read_nothing)
    for n in range(10_000):
        open_decisions.add(n, OpenDecision(n, 10**9 + n))
        open_decisions.close(n)
    assert len(open_decisions.deadlines) < 100


def test_received_rewards_are_kept_in_order() -> None:
    open_decisions = OpenDecisions(read_nothing)
    given = {"b": 0.5, "a": 0.25}
    reports = [RewardReceived(value=given[key], receipt="pending", key=key) for key in given]
    rewards = index_reports(reports)
    open_decisions.add(3, OpenDecision(0, NO_DEADLINE, rewards=rewards))
    copied = OpenDecisions(read_nothing)
    copied.fill_from_columns(open_decisions.to_columns())
    loaded = copied.get(3)
    assert loaded is not None
    assert [one.value for one in loaded.pending] == [0.5, 0.25]
    assert loaded.rewards == rewards
