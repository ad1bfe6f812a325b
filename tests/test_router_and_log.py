"""A router in memory and one with a log answer the same commands alike, errors included."""

import copy
import os
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylot
from bylot.errors import BudgetSpent, BylotError, DecisionError, DecisionNotFound, RewardError
from bylot.problem import Limit
from bylot.router.status import RouterStatus
from limit_fuzzer import SETUPS, LimitFuzzer
from scripted_routers import MemoryRouter, StoredRouter

SEEDS = int(os.environ.get("BYLOT_PAIR_SEEDS", "2"))
STEPS = 250
ROUTER_KINDS = (MemoryRouter, StoredRouter)
OF_THE_LOG = ("id", "router", "version", "at", "key")
"""Fields of a decision that differ between both, or that only a stored one has."""
STATE = ("decisions", "rewards", "contexts", "mean_reward", "kept", "limits", "q", "period")
DECISION_ID = re.compile(r"\bd\d+\b|\btriage\.1\.\d+(\.[0-9a-f]+)?")


class RouterPair:
    """Two routers of the same problem that get the same commands, and must answer alike."""

    def __init__(self, problem: bylot.Problem, policy: str) -> None:
        self.memory = MemoryRouter(problem, policy)
        self.stored = StoredRouter(problem, policy)
        self.ids: dict[str, str] = {}  # in the log, by those in memory

    @property
    def now(self) -> float:
        return self.memory.now

    @now.setter
    def now(self, now: float) -> None:
        self.memory.now = self.stored.now = now

    def ask_both(self, ask: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Give both the same command; if both refuse it alike, raise the error."""
        found = [catch_error(ask, router) for router in (self.memory, self.stored)]
        if any(isinstance(answer, BylotError) for answer in found):
            assert describe_error(found[0]) == describe_error(found[1])
            raise found[0]
        return found[0], found[1]

    def decide(self, **labels: Any) -> bylot.Decision:
        here, there = self.ask_both(lambda router: router.decide(**labels))
        self.ids[here.id] = there.id
        self.check_decisions(here, there)
        return here  # type: ignore[no-any-return]

    def check_decisions(self, here: bylot.Decision | None, there: bylot.Decision | None) -> None:
        """Require that decisions are equal but for what only a log has."""
        for field in bylot.Decision.__struct_fields__:
            if field not in OF_THE_LOG:
                assert getattr(here, field, None) == getattr(there, field, None), field

    def report(self, id: str, value: float | None = None, spend: Any = None) -> str:
        ids = {MemoryRouter: id, StoredRouter: self.ids[id]}
        here, there = self.ask_both(lambda router: router.report(ids[type(router)], value, spend))
        assert here == there
        return str(here)

    def cancel(self, id: str) -> bool:
        ids = {MemoryRouter: id, StoredRouter: self.ids[id]}
        here, there = self.ask_both(lambda router: router.cancel(ids[type(router)]))
        assert here == there
        return bool(here)

    def replace(self, id: str, failed: str) -> bylot.Decision | None:
        ids = {MemoryRouter: id, StoredRouter: self.ids[id]}
        here, there = self.ask_both(lambda router: router.replace(ids[type(router)], failed))
        self.check_decisions(here, there)
        return here  # type: ignore[no-any-return]

    def edit(self, problem: bylot.Problem) -> None:
        self.ask_both(lambda router: router.edit(problem))

    def set_tenant(self, tenant: str, limits: tuple[Limit, ...]) -> None:
        self.ask_both(lambda router: router.set_tenant(tenant, limits))

    def status(self) -> RouterStatus:
        here, there = self.ask_both(lambda router: router.status())
        for field in STATE:
            assert getattr(here, field) == getattr(there, field), field
        return here  # type: ignore[no-any-return]

    def measure_tenant(self, tenant: str) -> Any:
        here, there = self.ask_both(lambda router: router.measure_tenant(tenant))
        assert here == there
        return here

    def reopen(self, path: Path) -> None:
        refused = self.stored.logged.aggregate.core.book.refused
        self.ask_both(lambda router: router.reopen(path))
        self.stored.logged.aggregate.core.book.refused = refused  # a log has them after a decision

    def check(self) -> None:
        self.stored.check()


def catch_error(ask: Callable[[Any], Any], router: Any) -> Any:
    """The answer of a router, or its error."""
    try:
        return ask(router)
    except BylotError as error:
        return error


def describe_error(answer: object) -> tuple[object, ...]:
    """What must be equal of two errors: all but the ids and, of a spent budget, the remedy."""
    if isinstance(answer, BudgetSpent):
        return BudgetSpent, answer.limit, answer.resets_at
    return type(answer), DECISION_ID.sub("ID", str(answer))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("setup", SETUPS)
def test_router_and_log_answer_random_commands_alike(setup: str, seed: int, tmp_path: Path) -> None:
    fuzzer = LimitFuzzer(RouterPair, SETUPS[setup], seed, tmp_path / "router.bylot")
    for _ in range(STEPS):
        fuzzer.router.status()
        fuzzer.step()
    fuzzer.router.check()
    assert fuzzer.counts["decided"] > STEPS / 10, "nothing is compared if every request is refused"


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


def test_refused_requests_are_forecast_alike() -> None:
    problem = make_problem(bylot.at_most("usd", 8.0, per="hour"), traffic=100.0)
    pair = RouterPair(problem, "noisy-or")
    for _ in range(60):
        pair.now += 300
        try:
            pair.decide()
        except BudgetSpent:
            continue
        pair.status()


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
