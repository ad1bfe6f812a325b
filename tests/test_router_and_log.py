"""Routers in memory, in SQLite and in PostgreSQL give the same answers and have the same states."""

import copy
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.errors import BudgetSpent, BylotError, DecisionError, DecisionNotFound, RewardError
from bylot.problem import Limit
from command_sequences import Disagreement, SequencePlay
from scripted_routers import MemoryRouter, StoredRouter, parse_seq
from sequence_players import StoreSide

SEQUENCES = int(os.environ.get("BYLOT_SEQUENCES", "50"))
REOPENED = 250  # sequences after which the stores are opened again
ROUTER_KINDS = (MemoryRouter, StoredRouter)


@pytest.fixture(params=["sqlite", "postgres"])
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[StoreSide]]:
    """SQLite alone, or also PostgreSQL where that can be started."""
    addresses = [f"sqlite:///{tmp_path}/routers.db"]
    if request.param == "postgres":
        addresses.append(request.getfixturevalue("postgres_address"))
    opened = [StoreSide(address) for address in addresses]
    yield opened
    for side in opened:
        side.close()


def test_routers_in_memory_and_in_stores_answer_alike(
    sides: list[StoreSide], tmp_path: Path
) -> None:
    count = SEQUENCES if len(sides) > 1 else min(SEQUENCES, 20)
    found = []
    steps = 0
    for number in range(count):
        play = SequencePlay(number, sides, tmp_path / "router.bylot")
        try:
            play.run()
        except (Disagreement, BylotError) as error:
            found.append(f"sequence {number}: {error}")
        steps += play.steps
        if (number + 1) % REOPENED == 0:
            for side in sides:
                side.close()
                side.open()
    print(f"{count} sequences of {steps} commands: {len(found)} disagreements")
    assert steps > 20 * count, "nothing would be compared"
    assert not found, "\n".join(found)


def lower_a_bound(play: SequencePlay) -> None:
    """Let the router in memory have another bound than the stored one."""
    assert play.memory is not None
    router = play.memory.router
    first, *others = router.problem.limits
    router.change(router.problem.replace(limits=[first.at(first.bound * 0.999), *others]))
    router.engine.version = 1


def learn_a_little_more(play: SequencePlay) -> None:
    """Let the router in memory learn each reward as one a little higher."""
    assert play.memory is not None
    core = play.memory.router.core
    learn = core.learn
    core.learn = lambda ticket, value, *more: learn(ticket, value + 1e-12, *more)  # type: ignore[method-assign]


@pytest.mark.parametrize("sabotage", [lower_a_bound, learn_a_little_more])
def test_a_router_that_differs_a_little_is_noticed(
    sabotage: Callable[[SequencePlay], None], tmp_path: Path
) -> None:
    side = StoreSide(f"sqlite:///{tmp_path}/routers.db")
    noticed = 0
    for number in range(1, 11):
        play = SequencePlay(number, [side], tmp_path / "router.bylot")
        sabotage(play)
        try:
            play.run()
        except Disagreement:
            noticed += 1
    side.close()
    assert noticed >= 4, "of ten; the others have no status before an edit, or no reward"


def make_problem(*limits: Limit, **more: Any) -> bylot.Problem:
    costs = {"usd": [1.0, 2.0, 3.0]}
    return bylot.Problem(["a", "b", "c"], costs, limits, draws=2, **more)


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_costs_and_then_the_reward_can_have_one_key(kind: Any) -> None:
    router = kind(make_problem(bylot.at_most("usd", 4.0)), "distinct")
    made = router.decide()
    assert router.report(made.id, None, 2.0, key="k") == "settled"
    assert router.report(made.id, 0.5, None, key="k") == "learned"


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_a_bill_after_the_reward_is_settled(kind: Any) -> None:
    router = kind(make_problem(bylot.at_most("usd", 4.0)), "distinct")
    made = router.decide()
    assert router.report(made.id, 0.5) == "learned"
    assert router.report(made.id, None, 2.0) == "settled"
    assert router.status().costs["usd"].settled == 2.0


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_the_reward_of_a_decision_from_before_an_edit_of_the_pool_is_noted(kind: Any) -> None:
    problem = make_problem(bylot.at_most("usd", 4.0))
    router = kind(problem, "distinct")
    made = router.decide()
    router.edit(problem.replace(experts=["a", "b", "c", "d"], costs={"usd": [1.0, 2.0, 3.0, 1.5]}))
    assert router.report(made.id, 0.5, 2.0) == "noted"
    assert router.status().costs["usd"].settled == 2.0


def test_a_cancelled_decision_from_before_an_edit_is_refunded_in_its_period() -> None:
    problem = make_problem(bylot.at_most("usd", 4.0), bylot.at_most("usd", 4e3, per="day"))
    router = StoredRouter(problem, "distinct")
    made = [router.decide() for _ in range(5)]
    router.edit(problem.replace(limits=[problem.limits[0], problem.limits[1].at(5e3)]))
    assert router.cancel(made[2].id)
    period = router.status().period
    assert period is not None
    assert period.played == 4


def test_a_cancelled_decision_is_refunded_although_the_traffic_was_learned() -> None:
    limits = bylot.at_most("usd", 4.0), bylot.at_most("usd", 4e3, per="day")
    router = StoredRouter(make_problem(*limits, period=24, traffic=40.0), "distinct")
    made = []
    for _ in range(34):  # the traffic is looked at after 32
        router.now += 7_200
        made.append(router.decide())
    assert router.cancel(made[30].id)
    period = router.status().period
    assert period is not None
    assert period.played == 34 % 24 - 1


@pytest.mark.parametrize("policy", ["distinct", "tangent", "omd", "noisy-or"])
def test_a_decision_read_from_the_log_has_the_ticket_that_was_drawn(policy: str) -> None:
    router = StoredRouter(make_problem(bylot.at_most("usd", 4.0)), policy)
    place = parse_seq(router.decide().id)
    engine = router.logged.aggregate.engine
    opened = engine.open.get(place)
    assert opened is not None
    pairs: Any = zip(opened.ticket, engine.open.read(place).ticket, strict=True)
    assert all(np.array_equal(drawn, read, equal_nan=True) for drawn, read in pairs)


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_a_bill_of_the_period_before_an_edit_takes_no_missed_period_back(
    kind: Any, tmp_path: Path
) -> None:
    problem = make_problem(bylot.at_least("usd", 2.0), period=5)
    router = kind(problem, "distinct")
    made = [router.decide() for _ in range(8)]
    router.edit(problem.replace(limits=[bylot.at_least("usd", 1.5)]))
    for decision in made:
        router.report(decision.id, None, 9.0)
    (limit,) = router.status().limits
    assert limit.current is not None
    assert limit.current.missed == 0
    router.reopen(tmp_path / "router.bylot")  # which refuses an impossible state


def test_refused_requests_are_forecast_alike() -> None:
    problem = make_problem(bylot.at_most("usd", 8.0, per="hour"), traffic=100.0)
    routers = [kind(problem, "noisy-or") for kind in ROUTER_KINDS]
    for _ in range(60):
        for router in routers:
            router.now += 300
            with suppress(BudgetSpent):
                router.decide()
        here, there = (router.status() for router in routers)
        assert (here.decisions, here.limits) == (there.decisions, there.limits)
    assert here.decisions < 60


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_a_member_booked_at_costs_that_were_edited_since_is_not_replaced(kind: Any) -> None:
    def price(usd: float) -> bylot.Problem:
        costs = {"usd": [usd, 1.0, 1.0]}
        limits = [bylot.at_most("usd", 10.0, per="day")]
        return bylot.Problem(["a", "b", "c"], costs, limits, draws=1, traffic=10.0)

    router = kind(price(1.0), "distinct")
    made = [router.decide(available=["a"]) for _ in range(5)]
    router.edit(price(5.0))
    assert [router.replace(decision.id, "a") for decision in made] == [None] * 5
    for _ in range(5):
        router.decide(available=["b", "c"])
    with pytest.raises(BudgetSpent):
        router.decide(available=["b", "c"])


@pytest.mark.parametrize("kind", ROUTER_KINDS)
@pytest.mark.parametrize("policy", ["distinct", "noisy-or"])
def test_cancelled_decisions_from_before_an_edit_refund_no_more_than_was_counted(
    kind: Any, policy: str
) -> None:
    def bound(usd: float) -> bylot.Problem:
        limits = [bylot.at_most("usd", usd)]
        return bylot.Problem(["a", "b"], {"usd": [10.0, 0.0]}, limits, draws=1, period=100)

    router = kind(bound(10.0), policy)
    made = [router.decide(available=["a"]) for _ in range(90)]
    router.edit(bound(1.0))
    assert all(router.cancel(decision.id) for decision in made)
    spent = 0.0
    for _ in range(100):
        decision = router.decide()
        spent += decision.spend["usd"]
        router.report(decision.id, float(decision.subset == ("a",)))
    assert spent <= 100.0


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_a_total_bill_at_edited_costs_teaches_nothing_wrong(kind: Any) -> None:
    def price(usd: float) -> bylot.Problem:
        limits = [bylot.at_most("usd", 4.0)]
        return bylot.Problem(["a", "b"], {"usd": [usd, 1.0]}, limits, draws=1)

    router = kind(price(1.0), "distinct")
    made = [router.decide(available=["a"]) for _ in range(20)]
    router.edit(price(5.0))
    for decision in made:
        router.report(decision.id, 0.5, 2.0)
    core = router.router.core if kind is MemoryRouter else router.logged.aggregate.core
    assert core.totals.spent[0] == pytest.approx(40.0)
    assert core.book.tables.state.means[0, 0] * 4.0 == pytest.approx(5.0)  # as declared


@pytest.mark.parametrize("key", [5, b"x", [], 1.5])
def test_a_key_of_the_wrong_type_gets_a_clear_error(key: Any) -> None:
    router = bylot.Router(make_problem(), "distinct")
    decision = router.decide()
    with pytest.raises(RewardError, match="expected a text or None"):
        router.reward(decision.id, 0.5, key=key)
    wrong: Any
    for wrong in (None, key, "d7"):
        with pytest.raises(DecisionNotFound):
            router.cancel(wrong)
    with pytest.raises(DecisionError, match="a list of names"):
        router.decide(available=5)  # type: ignore[arg-type]
    with pytest.raises(DecisionError, match="a list of names"):
        router.replace(decision.id, decision.subset[0], "abc")


def test_a_router_can_be_copied_while_it_decides() -> None:
    router = bylot.Router(make_problem(), "distinct")

    def decide() -> None:
        for _ in range(1_500):
            router.reward(router.decide().id, 0.5)

    thread = threading.Thread(target=decide)
    thread.start()
    while thread.is_alive():
        assert copy.copy(router).t <= router.t
        assert pickle.loads(pickle.dumps(router)).t <= router.t
    thread.join()
    assert router.t == 1_500
