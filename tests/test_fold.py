"""Folds: a log replayed gives the same fold, bit for bit; a line that was changed is noticed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot import Problem, at_least, at_most
from bylot.durable.fold import Fold
from bylot.errors import (
    BylotError,
)
from diaries import Diary
from small import five

EVERY = ["distinct", "tangent", "omd", "cbwk", "ts-bwk", "moe", "random"]


def with_frank(bound: float) -> Problem:
    """Five experts and another one, without dan, under another bound."""
    return Problem(
        experts=["ann", "bob", "cat", "eve", "frank"],
        costs={"junior": [0, 0, 1, 1, 1], "usd": [4.0, 3.0, 1.0, 0.5, 2.0], "ms": [1.0] * 5},
        limits=[at_most("usd", bound), at_least("junior", 0.3), at_most("ms", 1.9)],
        draws=2,
    )


PROBLEMS = [five(), with_frank(3.0), with_frank(2.5)]

OPERATIONS = st.one_of(
    st.tuples(
        st.just("decide"),
        st.sampled_from([None, "a", "b", "ü"]),
        st.sampled_from([None, ("ann", "cat"), ("eve",), ("ann", "bob", "cat", "eve")]),
        st.booleans(),
    ),
    st.tuples(
        st.just("reward"),
        st.integers(0, 9),
        st.sampled_from([0.0, 0.25, 0.5]),
        st.sampled_from([None, "x", "y"]),
        st.sampled_from([None, {}, {"usd": 2.5}, {"usd": 0.0}]),
    ),
    st.tuples(st.just("activate"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("close"), st.integers(1, 3)),
    st.tuples(
        st.just("edit"),
        st.sampled_from(range(len(PROBLEMS))),
        st.sampled_from([(), ("cat",), ("ann", "eve")]),
        st.sampled_from(["earliest", "last", "sum"]),
        st.sampled_from([0.5, 2.0]),
    ),
    st.just(("reopen",)),
)


def perform(diary: Diary, operation: tuple[Any, ...], at: int) -> None:
    """Do one of the operations above, on one of the last decisions where it is on one."""
    seqs = [one.seq for one in diary.log if one.kind == "decided"][-10:] or [1]
    verb, *given = operation
    match verb:
        case "decide":
            context, available, defer = given
            diary.decide(at, context=context, available=available, defer=defer)
        case "reward":
            place, value, key, spend = given
            diary.reward(seqs[place % len(seqs)], value, at, key=key, spend=spend)
        case "activate" | "cancel":
            diary.note(getattr(diary.fold, verb)(at, of=seqs[given[0] % len(seqs)]))
        case "close":
            diary.close(at, limit=given[0])
        case "edit":
            problem, paused, aggregate, wait = given
            diary.edit(PROBLEMS[problem], at, paused=paused, aggregate=aggregate, wait=wait)
        case "reopen":
            diary.reopen()


@pytest.mark.parametrize("policy", EVERY)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(OPERATIONS, st.integers(-5, 800_000)), max_size=60))
def test_a_replayed_log_gives_the_same_fold_bit_for_bit(policy: str, steps: Any) -> None:
    diary = Diary(policy=policy, wait=1.0, memory=12)
    now = 0
    for operation, pause in steps:
        now = max(0, now + pause)
        before = diary.fold.fingerprint()
        lines = len(diary.log)
        try:
            perform(diary, operation, now)
        except BylotError:
            assert diary.fold.fingerprint() == before, "an error has changed something"
        assert diary.fold.seq == len(diary.log) - 1
        assert operation[0] == "reopen" or (diary.fold.fingerprint() == before) == (
            len(diary.log) == lines
        )
    assert diary.replayed().fingerprint() == diary.fold.fingerprint()
    assert Fold.thaw("triage", diary.fold.freeze()).fingerprint() == diary.fold.fingerprint()
