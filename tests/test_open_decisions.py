"""Open decisions: let go when they are old, closed when their time is up, in order."""

from hypothesis import given
from hypothesis import strategies as st

from bylot.eventlog.events import RewardReceived
from bylot.eventlog.open_decisions import NO_DEADLINE, NOT_STARTED, OpenDecision, OpenDecisions

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([NO_DEADLINE, NOT_STARTED, 5, 9, 14, 300])),
    st.tuples(st.just("wake"), st.integers(0, 30)),
    st.tuples(st.just("close"), st.integers(0, 30)),
    st.tuples(st.just("let go"), st.integers(0, 30)),
    st.just(("reread", 0)),
)


@given(st.lists(ACTIONS, max_size=200))
def test_they_are_as_in_a_plain_list(actions: list[tuple[str, int]]) -> None:
    ours, plain = OpenDecisions(), dict[int, tuple[int, int]]()  # seq: t, due
    for n, (verb, number) in enumerate(actions):
        seq = sorted(plain)[number % len(plain)] if plain else None
        if verb == "add":
            ours.add(2 * n, OpenDecision(n, number))
            plain[2 * n] = n, number
        elif verb == "wake" and seq is not None and plain[seq][1] == NOT_STARTED:
            ours.start_wait(seq, 7)
            plain[seq] = plain[seq][0], 7
        elif verb == "close" and seq is not None:
            ours.close(seq)
            del plain[seq]
        elif verb == "let go":
            gone = [one for one in plain.items() if one[1][0] < number]
            assert [held.t for held in ours.drop_before(number)] == sorted(t for _, (t, _) in gone)
            plain = {seq: one for seq, one in plain.items() if one[0] >= number}
        elif verb == "reread":
            ours = OpenDecisions.from_columns(ours.to_columns())
    assert {seq: (held.t, held.due) for seq, held in ours} == plain
    dues = sorted((due, seq) for seq, (_, due) in plain.items() if due >= 0)
    for due, seq in dues:
        assert ours.first_due() == (due, seq)
        ours.close(seq)
    assert ours.first_due() is None


def test_waits_of_closed_decisions_are_forgotten() -> None:
    ours = OpenDecisions()
    for n in range(10_000):
        ours.add(n, OpenDecision(n, 10**9 + n))
        ours.close(n)
    assert len(ours.deadlines) < 100


def test_rewards_that_were_told_are_kept_in_order() -> None:
    ours = OpenDecisions()
    told: dict[str | None, RewardReceived] = {
        key: RewardReceived(value, "pending", None, key) for key, value in (("b", 0.5), ("a", 0.25))
    }
    ours.add(3, OpenDecision(0, NO_DEADLINE, rewards=told))
    again = OpenDecisions.from_columns(ours.to_columns()).get(3)
    assert again is not None
    assert again.pending == [0.5, 0.25]
    assert again.rewards == told
