"""A new router learns from the log of another one, and is then about as good."""

import copy
from pathlib import Path

import numpy as np
import pytest

from bylot import errors, evaluate, problem_files
from bylot.environments import CallCosts, Outcomes
from bylot.evaluate import LogEntry, log_from_entries, select_rounds
from bylot.outcome_tables.outcomes import read_outcomes
from bylot.policies.base import FeedbackKind
from bylot.problem import Problem, at_most
from bylot.router.core import iterate_arrays
from bylot.router.past_rounds import PastRound, learn_rounds
from bylot.router.router import Router
from bylot.router_play import play
from bylot.trace import Trace

HOSPITAL = Path(__file__).resolve().parents[1] / "examples" / "hospital"
POOL = Problem(
    ["ann", "bob", "eve", "zoe"],
    {"usd": [1.0, 2.0, 4.0, 1.0]},
    [at_most("usd", 4.0)],
    draws=2,
)


def read_example() -> tuple[Problem, Outcomes]:
    """The example of a hospital, with generated outcomes."""
    read = read_outcomes(HOSPITAL / "generated-outcomes.csv", HOSPITAL / "generated-questions.csv")
    file = problem_files.read(HOSPITAL / "problem.yaml", HOSPITAL / "generated-experts.csv")
    return file.problem, Outcomes(read.table, read.dimension)


def learn_play(router: Router, trace: Trace) -> int:
    """Learn from the log of a play; returns how many rounds."""
    log = log_from_entries(trace.problem, log_play(trace))
    past = select_rounds(log, router.rewards, router.feedback)
    router.learn_from(past.rounds)
    return len(past.rounds)


def log_play(trace: Trace) -> list[LogEntry]:
    """The entries of a play, with the scores of members if they were reported."""
    entries = evaluate.entries_from_trace(trace)
    if trace.feedback != "members":
        return entries
    names = trace.problem.experts
    columns = zip(entries, trace.record.draws, trace.record.scores, strict=True)
    return [
        entry._replace(members={names[i]: float(x) for i, x in zip(draws, scores, strict=True)})
        for entry, draws, scores in columns
    ]


def list_state(router: Router) -> list[object]:
    """All that a router has learned and booked, as plain data."""
    core = router.core
    assert core.book.tables is not None
    arrays = [*iterate_arrays(core.state), *iterate_arrays(core.totals)]
    unused = ("sets", "ahead", "quota")  # room for a schedule, which is not filled yet
    arrays += iterate_arrays(core.book.tables.state, unused)
    numbers = [array.tolist() for array in arrays]
    return [numbers, list(core.contexts), core.skipped]


def make_rounds(count: int) -> list[PastRound]:
    """Panels that no router has chosen, in two contexts."""
    rng = np.random.default_rng(7)
    rounds = []
    for t in range(count):
        first, second = rng.choice(4, 2, replace=False).tolist()
        panel = (POOL.experts[first], POOL.experts[second])
        reward = float(rng.random() < 0.3 + 0.5 * ("eve" in panel))
        rounds.append(PastRound(panel, reward, f"kind {t % 2}", spend={"usd": 1.0 + t % 5}))
    return rounds


@pytest.mark.parametrize("kind", ["panel", "members"])
def test_a_router_that_learned_from_a_log_is_as_good_as_the_one_that_wrote_it(
    kind: FeedbackKind,
) -> None:
    problem, environment = read_example()
    behind = []
    behind_without = []
    for seed in range(4):
        writer, learner, beginner = (
            Router(problem, "noisy-or", seed=seed, feedback=kind) for _ in range(3)
        )
        assert learn_play(learner, play(writer, environment, 2_000)) == 2_000
        earned = [
            play(router, environment, 500, start=2_000).rewards.mean()  # the same requests
            for router in (writer, learner, beginner)
        ]
        behind.append(earned[0] - earned[1])
        behind_without.append(earned[0] - earned[2])
    error = np.std(behind, ddof=1) / 2
    assert np.mean(behind) < 0.005 + 2 * error < 0.015
    assert (
        np.mean(behind_without) > 0.015 + 2 * error
    )  # the comparison would notice nothing learned


def test_what_calls_cost_is_learned_and_nothing_is_booked() -> None:
    problem, environment = read_example()
    (cost,) = problem.costs.keys() & {"cost_usd_per_call"}
    rng = np.random.default_rng(0)
    real = problem.costs[cost] * rng.uniform(0.5, 1.5, problem.size)
    calls = CallCosts({cost: real}, noise=0.2)
    writer, learner, beginner = (Router(problem, "noisy-or", seed=1) for _ in range(3))
    learn_play(learner, play(writer, environment, 1_000, calls=calls))
    limits = [router.core.book.tables for router in (writer, learner, beginner)]
    means = [tables.state.means[0] for tables in limits if tables is not None]
    off = [np.abs(means[0] - other).mean() / means[0].mean() for other in means[1:]]
    assert off[0] < 0.1 < off[1]
    status = learner.status()
    assert status.decisions == status.rewards == 0
    assert all(limit.mean is None or limit.mean == 0 for limit in status.limits)
    assert limits[1] is not None
    assert not limits[1].state.ledgers["spent"].any()
    assert not learner.core.count_visits().any()


def test_batches_and_saved_routers_learn_the_same(tmp_path: Path) -> None:
    log = make_rounds(203)
    whole, parts = Router(POOL, "noisy-or", seed=3), Router(POOL, "noisy-or", seed=3)
    whole.learn_from(log)
    parts.learn_from(log[:57])
    parts.save(tmp_path / "router.bylot")
    parts = Router.load(tmp_path / "router.bylot")
    parts.learn_from(log[57:])
    assert list_state(parts) == list_state(whole)
    panels = [[router.decide("kind 1").draws for _ in range(50)] for router in (whole, parts)]
    assert panels[0] == panels[1]
    assert whole.status().decisions == 50


def test_a_log_is_left_out_where_nothing_can_be_learned() -> None:
    entries = [
        LogEntry("a", 0, ("ann", "bob"), 1.0, members={"ann": 1.0}, winner="ann"),
        LogEntry("b", 1, ("ann", "bob"), None),
        LogEntry("c", 2, ("ann", "gone"), 1.0),
        LogEntry("d", 3, ("ann", "bob", "eve"), 0.0),
        LogEntry("e", 4, ("zoe",), 0.0, spend={"usd": 0.5, "tokens": 3.0}),
        LogEntry("f", 5, ("ann",), 0.0, spend={"usd": 1.0}),
    ]
    past = select_rounds(log_from_entries(POOL, entries, gone=["gone"]))
    assert past.rounds == [
        PastRound(("ann", "bob"), 1.0),
        PastRound(("zoe",), 0.0, spend={"usd": 0.5}),
        PastRound(("ann",), 0.0, spend={"usd": 1.0}),
    ]
    assert past.left_out == {
        "without a reward": 1,
        "with experts that this router does not have": 1,
        "with more than 2 experts": 1,
    }
    assert str(past).startswith("3 rounds to learn from, 3 left out\n  1 without a reward\n")
    scored = select_rounds(log_from_entries(POOL, entries[:1]), feedback="members")
    assert scored.rounds == [PastRound(("ann", "bob"), 1.0, members={"ann": 1.0})]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PastRound(("ann", "bob"), 1.5), r"reward 1.5: expected a number in \[0.0, 1.0\]"),
        (PastRound(("ann", "ann"), 1.0), "1 to 2 different experts"),
        (PastRound((), 1.0), "1 to 2 different experts"),
        (PastRound(("ann", "bab"), 1.0), "no expert 'bab'"),
        (PastRound(("ann", "bob"), 1.0, members={"ann": 1.0}), "takes no scores of members"),
        (PastRound(("ann", "bob"), 1.0, spend={"usd": -1.0}), "spend on 'usd'"),
        (PastRound(("ann", "bob"), 1.0, spend={"usd": 1e8}), "spend on 'usd'"),
        (PastRound(("ann", "bob"), 1.0, context="third"), "'third' would be number 3"),
    ],
)
def test_an_invalid_round_changes_nothing(wrong: PastRound, message: str) -> None:
    router = Router(POOL, "noisy-or", max_contexts=2)
    good = [PastRound(("ann", "bob"), 1.0, context=context) for context in ("a", "b")]
    learn_rounds(router.core, good)
    before = list_state(copy.deepcopy(router))
    with pytest.raises(errors.BylotError, match=message):
        learn_rounds(router.core, [good[0], wrong])
    assert list_state(router) == before


def test_rewards_outside_the_range_of_the_router_are_named() -> None:
    log = log_from_entries(POOL, [LogEntry("visit 7", 0, ("ann", "bob"), 3.0)])
    with pytest.raises(errors.RewardError, match=r"for decision visit 7 \(entry 0\)"):
        select_rounds(log)
    assert len(select_rounds(log, rewards=(0, 5)).rounds) == 1


@pytest.mark.parametrize("policy", ["distinct", "tangent", "omd"])
def test_a_policy_that_needs_propensities_of_its_own_refuses_a_log(policy: str) -> None:
    with pytest.raises(errors.PolicyError, match=f"{policy} cannot learn from a log.*'noisy-or'"):
        Router(POOL, policy).learn_from(make_rounds(1))


def test_only_a_new_router_learns_from_a_log() -> None:
    router = Router(POOL, "noisy-or")
    router.decide()
    with pytest.raises(errors.DecisionStateError, match="before the first one"):
        router.learn_from(make_rounds(1))


def test_a_log_of_other_experts_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    evaluate.write_log(path, [LogEntry("a", 0, ("ann", "gone"), 1.0)])
    with pytest.raises(errors.DataError, match="unknown expert 'gone'"):
        evaluate.read_log(path, POOL)
    assert evaluate.read_log(path, POOL, gone=None).gone == ("gone",)
