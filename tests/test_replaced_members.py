"""A member that failed is replaced by another expert, and no limit gets worse by that."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, at_least, at_most, evaluate, share
from bylot.errors import (
    DecisionError,
    DecisionStateError,
    NoSubstitute,
    RewardConflict,
    RewardError,
)
from bylot.eventlog.audit import LoggedCosts
from bylot.eventlog.commands import ReplaceMember
from bylot.eventlog.decision_log import LogReader
from bylot.eventlog.events import BODY_DECODERS
from bylot.eventlog.history import show_events
from bylot.limits.ledger import compute_later_cost
from bylot.limits.records import point_to_limits
from bylot.limits.substitutes import draw_substitute, mark_substitutes
from bylot.numerics.jit import Floats
from bylot.numerics.philox import RngKey
from bylot.policies import POLICIES
from bylot.policies.compiled_handle import average_distribution
from bylot.router.changes import MemberReplaced
from bylot.router.core import iterate_arrays
from bylot.router.decision import Decision
from bylot.server.dashboard.router_view import latest_decision
from limit_tables import get_limits
from logged_aggregate import SECOND, LoggedRouter, decode_body

NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus")
DEAR = ("ann", "bob", "fay")  # each of them can be replaced by others
USD = [2.0, 2.0, 2.0, 1.0, 1.0, 3.0, 0.5]


def make_pool(**more: Any) -> Problem:
    """Seven experts, three asked: a budget, a minimum share and a cap on a server."""
    limits = [
        at_most("usd", 6.0),
        at_least(share("new", ["cat", "eve", "gus"]), 0.3),
        at_most("rack", 2.5),
    ]
    costs: Any = {"usd": USD, "rack": [1, 1, 1, 1, 0, 1, 0], "watt": [1, 2, 3, 4, 5, 6, 7]}
    return Problem(list(NAMES), costs, limits, draws=3, period=100, **more)


class PanelRouter(LoggedRouter):
    """A logged router whose members can be replaced."""

    def replace(self, of: int, failed: str, at: int = 0, **options: Any) -> MemberReplaced | None:
        """Replace a member; None if that was done before."""
        command = ReplaceMember(f"triage.1.{of}", failed, **options)
        event = self.append(self.aggregate.replace(at, of, command))
        return None if event is None else BODY_DECODERS["replaced"](event.body)

    def decision(self, of: int) -> Decision:
        """A decision as it is now."""
        return show_events("triage", self.aggregate.decision_events(of))

    def decide_replaceable(self, **options: Any) -> int:
        """Decide until a drawn panel has a member that others could replace."""
        for _ in range(100):
            of = self.decide(**options)
            made = self.aggregate.read(of).known
            others = np.ones(len(NAMES), np.bool_)
            seats = made.ticket.draws.tolist()
            others[seats] = False
            able = [(self.aggregate.core.book.mark_substitutes(i) & others).any() for i in seats]
            if any(able) and not made.ticket.replaced:
                return of
        raise AssertionError("nobody can be replaced")

    def replace_any(self, of: int, **options: Any) -> MemberReplaced:
        """Replace the first member that can be replaced."""
        for name in self.decision(of).subset:
            try:
                body = self.replace(of, name, **options)
            except NoSubstitute:
                continue
            assert body is not None
            return body
        raise AssertionError("nobody can be replaced")


def make_logged(policy: str = "distinct", problem: Problem | None = None, **options: Any) -> Any:
    return PanelRouter(problem or make_pool(), policy, **options)


def assert_log_gives_the_state(logged: LoggedRouter) -> None:
    """Replay and snapshot agree with the router; the ledger is the sum of the log."""
    aggregate = logged.aggregate
    assert logged.replay_log().fingerprint() == aggregate.fingerprint()
    costs, core = LoggedCosts(), aggregate.core
    for event in logged.log:
        costs.add(event, core.sums.uncounted.since)
    for name, settled in core.sums.list_spent().items():
        sums = costs.totals(name, core.sums.uncounted.since.get(name, 0))
        assert_allclose((aggregate.tally.stated[name], settled), sums, rtol=1e-9, atol=1e-9)
        counters, spent = aggregate.tally.counters, sum(aggregate.tally.timeline.spent[name])
        assert_allclose(spent, sums[1], rtol=1e-9, atol=1e-9)
        parts = [one.get(name, 0.0) for one in (counters.booked, counters.added, counters.saved)]
        assert_allclose(parts[0] + parts[1] - parts[2], sums[1], rtol=1e-9, atol=1e-9)


def compute_guarded_rows(logged: LoggedRouter) -> Floats:
    """What the guard counts as spent in each row, with what is to be set aside."""
    rule, state = get_limits(logged.aggregate.core)
    limits, nobody = point_to_limits(rule, state), np.empty(0, np.int64)
    left, place = int(state.clock["left"][0]), int(state.clock["place"][0])
    later = [compute_later_cost(limits, j, left, place, nobody) for j in range(len(rule.rows))]
    return np.asarray(list_spent(logged) + np.array(later))


def list_spent(logged: LoggedRouter) -> Floats:
    """What everybody spent under each row."""
    rule, state = get_limits(logged.aggregate.core)
    spent: Floats = state.ledgers["spent"][: len(rule.rows)].copy()
    return spent


# The panel, its cost, and what is learned.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reopened", [False, True])
def test_another_expert_takes_the_place_of_a_failed_member(policy: str, reopened: bool) -> None:
    logged = make_logged(policy)
    for _ in range(12):
        logged.reward(logged.decide(), 0.5)
    of = logged.decide(context="a", available=DEAR)
    before = logged.decision(of)
    body = logged.replace_any(of)
    if reopened:
        logged.reopen()
    now = logged.decision(of)
    assert now.draws == tuple(body.added if x == body.failed else x for x in before.draws)
    assert body.added not in before.draws
    assert now.failed == (body.failed,)
    assert (now.propensity, now.inclusion, now.draw_probabilities) == (None, None, None)
    row = [NAMES.index(body.failed), NAMES.index(body.added)]
    for name, costs in logged.aggregate.core.problem.costs.items():
        more = costs[row[1]] - costs[row[0]]
        assert_allclose(now.spend[name], before.spend[name] + more, rtol=1e-12)
        sums = logged.aggregate.core.totals.spent.tolist()
    assert_allclose(sum(sums), sum(logged.aggregate.tally.stated.values()), rtol=1e-12)
    assert logged.record(of).decision == now
    assert logged.record(of).state == "waiting"
    assert logged.reward(of, 0.75) == "learned"
    logged.decide(context="a")
    assert_log_gives_the_state(logged)


def test_repeating_the_command_returns_the_decision_as_it_is() -> None:
    logged = make_logged()
    of = logged.decide(available=DEAR)
    body = logged.replace_any(of)
    before, now = logged.aggregate.fingerprint(), logged.decision(of)
    assert logged.replace(of, body.failed) is None
    logged.reopen()
    assert logged.replace(of, body.failed, available=("gus",)) is None
    assert (logged.aggregate.fingerprint(), logged.decision(of)) == (before, now)
    logged.reward(of, 0.5)
    assert logged.replace(of, body.failed) is None, "also when it was rewarded since"


def test_a_substitute_can_fail_too_and_nobody_returns() -> None:
    costs = {"usd": [1.0] * 5}
    problem = Problem(list("abcde"), costs, [at_most("usd", 3.0)], draws=2, period=100)
    logged = make_logged(problem=problem)
    of = logged.decide()
    first, other = logged.decision(of).subset
    gone = [first]
    for _ in range(3):
        body = logged.replace(of, gone[-1])
        assert body.added not in {*gone, other}
        gone.append(body.added)
        logged.reopen()
    assert logged.decision(of).failed == tuple(gone[:-1])
    with pytest.raises(NoSubstitute, match="nobody can take the place of"):
        logged.replace(of, gone[-1])
    assert set(logged.decision(of).subset) == {gone[-1], other}
    assert logged.aggregate.tally.counters.failed == 3
    assert_log_gives_the_state(logged)


def test_scores_and_costs_are_of_the_new_panel() -> None:
    logged = make_logged("noisy-or", feedback="members")
    of = logged.decide(available=DEAR)
    body = logged.replace_any(of)
    panel = logged.decision(of).subset
    with pytest.raises(RewardError, match=f"has no member '{body.failed}'"):
        logged.reward(of, members={body.failed: 1.0})
    before = {name: 1.0 for name in panel if name != body.added} | {body.failed: 0.5}
    with pytest.raises(RewardError, match=f"lacks member '{body.added}'"):
        logged.reward(of, spend={"usd": before}, key="gateway")
    paid = {"usd": dict.fromkeys(panel, 0.5)}
    assert logged.reward(of, spend=paid, key="gateway") == "settled"
    rule, state = get_limits(logged.aggregate.core)
    usd = state.means[0] != rule.A[0]
    assert {NAMES[i] for i in np.flatnonzero(usd)} == set(panel), "their calls were learned"
    assert not state.waiting[0].any()
    assert logged.reward(of, members=dict.fromkeys(panel, 1.0)) == "learned"
    assert_allclose(logged.aggregate.status().costs["usd"].settled, 1.5, rtol=1e-12)
    assert_log_gives_the_state(logged)


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict", "omd", "moe"])
def test_gradients_do_not_take_the_new_panel_for_a_draw(policy: str) -> None:
    def read_gradient(logged: LoggedRouter) -> Any:
        state = logged.aggregate.core.state
        if policy == "moe":
            return state.theta.copy()
        return state.g.copy() if policy == "omd" else state.gradient.g.copy()

    def learn_from(replaced: bool) -> float:
        logged = make_logged(policy)
        for n in range(61):
            logged.reward(logged.decide(context="ab"[n % 2]), 0.25 + n % 3 / 4)
        of = logged.decide_replaceable(context="a")
        if replaced:
            logged.replace_any(of)
        before = read_gradient(logged)
        logged.reward(of, 1.0)
        return float(np.abs(read_gradient(logged) - before).max())

    assert learn_from(True) == 0.0
    assert learn_from(False) > 0.0, "the test can fail"


def test_noisy_or_learns_from_the_actual_panel() -> None:
    logged = make_logged("noisy-or")
    of = logged.decide(available=DEAR)
    body = logged.replace_any(of)
    logged.reward(of, 1.0)
    other = make_logged("noisy-or")
    same = other.decide(available=DEAR)
    ticket = other.aggregate.engine.open.get(same).ticket
    ticket.draws[ticket.draws == NAMES.index(body.failed)] = NAMES.index(body.added)
    other.aggregate.core.learn(ticket, 1.0)
    mine, theirs = (one.aggregate.core.state.model for one in (logged, other))
    for a, b in zip(iterate_arrays(mine), iterate_arrays(theirs), strict=True):
        assert_array_equal(a, b)


# Who can take the place.


def test_paused_unavailable_and_dearer_experts_do_not_take_the_place() -> None:
    logged = make_logged()
    of = logged.decide(available=DEAR)
    assert set(logged.decision(of).subset) == set(DEAR)
    with pytest.raises(NoSubstitute):
        logged.replace(of, "ann", available=("fay", "bob"))
    with pytest.raises(NoSubstitute):
        logged.replace(of, "ann", available=())
    with pytest.raises(DecisionError, match="no expert 'zoe'"):
        logged.replace(of, "ann", available=("zoe",))
    with pytest.raises(DecisionError, match="has no member 'gus'"):
        logged.replace(of, "gus")
    logged.edit(paused=("cat", "eve"))
    with pytest.raises(NoSubstitute):
        logged.replace(of, "ann", available=("cat", "eve"))
    assert logged.replace(of, "ann", available=("cat", "dan", "eve")).added == "dan"
    assert logged.replace(of, "bob").added == "gus", "cat and eve are paused"
    with pytest.raises(NoSubstitute):
        logged.replace(of, "gus")
    assert_log_gives_the_state(logged)


def test_a_substitute_is_not_worse_under_any_limit_as_declared_at_most_or_learned() -> None:
    problem = make_pool(max_costs={"usd": [4, 4, 4, 9, 2, 6, 1]})
    free = mark_substitutes(problem, None, NAMES.index("ann"))
    assert {NAMES[i] for i in np.flatnonzero(free)} == {"ann", "bob", "cat", "eve", "gus"}
    logged = make_logged(problem=make_pool())
    core = logged.aggregate.core
    assert core.book.mark_substitutes(0)[NAMES.index("bob")]
    for _ in range(5):
        of = logged.decide(available=("bob", "dan", "fay"))
        paid = {"bob": 2.5, "dan": 1.0, "fay": 3.0}
        logged.reward(of, spend={"usd": paid}, key="gateway")
    assert not core.book.mark_substitutes(0)[NAMES.index("bob")], "bob was dearer than declared"
    assert core.book.mark_substitutes(1)[0]


def test_the_state_of_a_decision_decides_whether_it_can_be_changed() -> None:
    logged = make_logged(wait=1.0, aggregate="last")
    deferred, cancelled, pending, settled, closed = (
        logged.decide(0, defer=n == 0, available=DEAR) for n in range(5)
    )
    logged.append(logged.aggregate.cancel(0, cancelled))
    logged.reward(pending, 0.5, 1)
    logged.reward(settled, None, 1, spend={"usd": 1.0}, key="gateway")
    states = {deferred: "deferred", cancelled: "cancelled", pending: "rewarded"}
    states |= {settled: "settled"}
    for of, state in states.items():
        with pytest.raises(DecisionStateError, match=f"is {state}; its panel cannot be changed"):
            logged.replace(of, logged.decision(of).subset[0], 2)
    logged.close(2 * SECOND)
    with pytest.raises(DecisionStateError, match="is closed; its panel"):
        logged.replace(closed, logged.decision(closed).subset[0], 3 * SECOND)
    logged.append(logged.aggregate.activate(3 * SECOND, deferred))
    logged.replace_any(deferred, at=3 * SECOND)
    assert_log_gives_the_state(logged)


def test_a_changed_decision_can_be_cancelled_and_survives_edits() -> None:
    logged = make_logged()
    of, other = logged.decide(available=DEAR), logged.decide(available=DEAR)
    logged.replace_any(of)
    logged.replace_any(other)
    logged.edit(make_pool(max_costs={"usd": [9.0] * 7}))
    logged.append(logged.aggregate.cancel(0, of))
    assert_allclose(
        logged.aggregate.core.totals.spent,
        list(logged.decision(other).spend.values()),
        atol=1e-12,
    )
    problem = make_pool()
    pool = Problem(
        [*NAMES[:-1], "hal"], dict(list(problem.costs.items())[:3]), [at_most("usd", 6.0)], draws=3
    )
    logged.edit(pool)
    with pytest.raises(NoSubstitute, match="were added or removed since"):
        logged.replace(other, logged.decision(other).subset[-1])
    logged.reopen()
    assert logged.reward(other, 0.5, spend={"usd": 2.0}) == "noted"
    assert_log_gives_the_state(logged)


# Draws.


def measure_deviation(q: Floats, believed: Floats, candidates: Any, n: int = 20_000) -> float:
    """The largest z-score of n substitutes against the believed chances."""
    drawn = [draw_substitute(q, candidates, RngKey(7, t), 1) for t in range(n)]
    count, chances = np.bincount(drawn, minlength=q.size), np.where(candidates, believed, 0.0)
    chances /= chances.sum()
    assert not count[~candidates].any()
    some = chances[candidates]
    spread = np.sqrt(n * some * (1.0 - some))
    return float(np.abs((count[candidates] - n * some) / spread).max())


def test_substitutes_follow_the_distribution_among_those_who_can() -> None:
    q, candidates = np.array([0.3, 0.05, 0.2, 0.25, 0.2]), np.array([0, 1, 1, 1, 0], np.bool_)
    assert measure_deviation(q, q, candidates) < 5
    assert measure_deviation(q, q[::-1], candidates) > 5, "the test can fail"
    none = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    assert measure_deviation(none, np.ones(5), candidates) < 5, "equal chances without any mass"


def test_a_router_draws_from_the_distribution_of_the_context() -> None:
    logged = make_logged()
    rng = np.random.default_rng(5)
    for _ in range(300):
        of = logged.decide(context="a")
        logged.reward(of, float("gus" in logged.decision(of).subset) * rng.random())
        logged.decide(context="b")
    core = logged.aggregate.core
    only_a = np.eye(1, 1)[0]
    q = average_distribution(core._handle, only_a, np.empty(0, np.bool_))
    of = logged.decide(context="a", available=DEAR)
    candidates = core.book.mark_substitutes(NAMES.index("ann"))
    candidates[[0, 1, 5]] = False
    made = logged.aggregate.read(of).known
    added = logged.replace(of, "ann").added
    assert NAMES.index(added) == draw_substitute(
        average_distribution(core._handle, only_a, np.empty(0, np.bool_)),
        candidates,
        RngKey(core.run.seed, made.ticket.t),
        0,
    )
    assert q[NAMES.index("gus")] > 1.2 * q[NAMES.index("eve")], "it has learned"


# Any sequence.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "decide", "replace", "replace", "settle", "reward", "reopen"]),
        st.integers(0, 3),
        st.integers(0, 8),
    ),
    max_size=40,
)


def apply_step(logged: PanelRouter, made: list[int], verb: str, which: int, number: int) -> None:
    of = made[-1 - which % len(made)] if made else 0
    if verb == "decide" or not made:
        made.append(logged.decide(context="ab"[which % 2]))
    elif verb == "replace":
        before = compute_guarded_rows(logged), list_spent(logged)
        panel = logged.decision(of).subset
        logged.replace(of, panel[number % len(panel)])
        rule, state = get_limits(logged.aggregate.core)
        certain = ~rule.rows["varies"]
        certain |= rule.rows["certain"]
        certain |= state.learned["reports"] == 0
        after = compute_guarded_rows(logged), list_spent(logged)
        assert (after[1] <= before[1] + 1e-12).all(), "no limit gets worse"
        assert (after[0] <= before[0] + 1e-12)[certain].all(), "and no promise"
    elif verb == "settle":
        spend = {"usd": number / 2, "watt": dict.fromkeys(logged.decision(of).subset, 1.0)}
        logged.reward(of, spend=spend, key="gateway")
    elif verb == "reward":
        logged.reward(of, number / 8)
    else:
        logged.reopen()


@pytest.mark.parametrize("policy", ["distinct", "tangent", "noisy-or"])
@given(steps=STEPS)
@settings(max_examples=40, deadline=None)
def test_after_any_steps_the_ledger_is_the_sum_of_the_log(policy: str, steps: Any) -> None:
    problem = make_pool(max_costs={"usd": [1.5 * cost for cost in USD]})
    logged, made = PanelRouter(problem, policy), list[int]()
    for step in steps:
        try:
            apply_step(logged, made, *step)
        except (RewardConflict, DecisionStateError):
            continue
    assert_log_gives_the_state(logged)


# What others see.


def read_logged_entries(logged: LoggedRouter) -> Any:
    """The log as `bylot evaluate` reads it."""
    reader = LogReader("triage.1")
    for event in logged.log:
        reader.apply(event.seq, event.of, event.seal.hex(), decode_body(event))
    return reader.read(())


@pytest.mark.parametrize("policy", ["distinct", "tangent", "noisy-or"])
def test_changed_panels_are_no_evidence_for_other_policies(policy: str, tmp_path: Any) -> None:
    logged, problem = make_logged(policy), make_pool()
    for n in range(200):
        of = logged.decide(available=DEAR if n % 10 == 0 else NAMES[:-1] if n % 3 else None)
        if n % 10 == 0:
            logged.replace_any(of)
        logged.reward(of, n % 2)
    entries = read_logged_entries(logged)
    changed = [one for one in entries if one.substituted]
    assert len(changed) == 20
    assert all(not one.has_probability for one in changed)
    for one in changed:
        seq = int(one.id.split(".")[2])
        decision = logged.decision(seq)
        assert (one.subset, dict(one.spend)) == (decision.subset, decision.spend)
        same = evaluate.entry_from_decision(decision, one.reward, logged.aggregate.core.policy)
        assert same._replace(id=one.id, available=one.available) == one
    for kind in ("jsonl", "parquet"):
        path = tmp_path / f"log.{kind}"
        evaluate.write_log(path, entries)
        log = evaluate.read_log(path, problem)
        assert sum(one.substituted for one in log.entries) == 20
    if policy != "noisy-or":
        result = evaluate.evaluate_target(log, evaluate.make_uniform_target(problem), least=1.0)
        assert result.counts.substituted == 20
        assert result.counts.used == 180 - result.counts.replaced
        assert any("20 rounds in which a member failed" in note for note in result.notes)


def test_a_page_names_the_member_that_failed() -> None:
    logged = make_logged()
    of = logged.decide(available=DEAR)
    body = logged.replace_any(of)
    row = latest_decision(logged.record(of))
    assert f"{body.failed} failed and was replaced" in row["notes"]
    assert body.added in [one["name"] for one in row["panel"]]
