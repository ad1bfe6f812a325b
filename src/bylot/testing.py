"""Contract tests for pytest: what a policy owes under every kind of limit.

    class TestMine(PolicyContract):
        policy = MyPolicy()

Rewards of a play come late, or never. Its windows are judged here, by sums over the decisions in
plain Python, which share no code with the limits that they check.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bylot.environments import CallCosts, Given
from bylot.environments.call_costs import draw_call_costs, make_declared_costs, report_calls
from bylot.errors import BudgetSpent, PolicyError, ProblemError
from bylot.numerics.philox import RngKey
from bylot.policies import Auto, PlainPolicy, Policy
from bylot.problem import Limit, Problem, at_least, at_most, share
from bylot.router.decision import Decision
from bylot.router.router import Router
from bylot.simulation import simulate

REQUESTS = 240  # of a play
LONGEST_LAG = 15  # requests until a reward arrives
TOLERANCE = 1e-9  # relative, of sums
START = 1_774_580_400.0  # 27 March 2026: a week, a month and summer time begin in the days after it
ZONE = "Europe/Berlin"
WINDOW_FORMATS = {"hour": "%Y-%m-%d %H %z", "day": "%Y-%m-%d", "week": "%G-%V", "month": "%Y-%m"}
COSTS = {"usd": (1.0, 2.0, 3.0, 1.5, 0.5, 4.0, 2.2, 0.9), "gpu": (0, 1, 1, 0, 0, 1, 0, 1)}
EXPERTS = tuple(f"e{i}" for i in range(8))
NEW = share("new", ["e5", "e6"])
SMALL = share("small", ["e0", "e4", "e7"])


@dataclass
class Request:
    """A request, what comes of it, and when its reward arrives."""

    at: float  # seconds since 1970
    context: str
    tenant: str | None
    available: tuple[str, ...] | None  # None: all
    values: Any  # (K,) what each expert would earn
    due: int  # the request after which its reward arrives; -1: never
    decision: Decision | None = None  # None: it was refused
    costs: Any = None  # (d, M) of the calls, under each limit


@dataclass(frozen=True)
class LimitKind:
    """Limits on a pool of eight experts, and the requests under which they are tested.

    calls:    what calls really cost; None: what is declared
    promised: of which limits no window may be outside. Where calls cost what could not be known, of
              none; beside a total, not of an average, which waits while the total is nearly spent
    """

    limits: tuple[Limit, ...]
    period: int = 60
    max_costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    contexts: tuple[str, ...] = ("all",)
    tenants: tuple[str | None, ...] = (None,)
    pause_s: float = 2_400.0  # between two requests, on average
    calls: CallCosts | None = None
    promised: Literal["all", "totals", "none"] = "all"

    def make_problem(self) -> Problem:
        """Return the problem."""
        traffic = 86_400.0 / self.pause_s if any(limit.per for limit in self.limits) else None
        more: Any = {"period": self.period, "max_costs": self.max_costs, "traffic": traffic}
        return Problem(EXPERTS, COSTS, self.limits, draws=3, **more)

    def list_requests(self, seed: int, outages: bool = False) -> list[Request]:
        """Return the requests of a play; one reward in ten is lost, the others are late."""
        rng = np.random.default_rng(seed)
        skills = rng.uniform(0.1, 0.9, len(EXPERTS))
        times = START + np.cumsum(rng.exponential(self.pause_s, REQUESTS))
        requests = []
        for n, at in enumerate(times.tolist()):
            some = rng.permutation(EXPERTS)[: rng.integers(1, len(EXPERTS))].tolist()
            available = tuple(some) if outages and rng.random() < 0.4 else None
            due = n + int(rng.integers(LONGEST_LAG)) if rng.random() < 0.9 else -1
            values = skills * rng.uniform(size=len(EXPERTS))
            context = self.contexts[n % len(self.contexts)]
            tenant = self.tenants[rng.integers(len(self.tenants))]
            requests.append(Request(at, context, tenant, available, values, due))
        return requests


def list_kinds() -> dict[str, LimitKind]:
    """Return the kinds of limits, by name."""
    day = at_most("usd", 140.0, per="day", zone=ZONE)
    tenant_day = at_most("usd", 45.0, per="day", zone=ZONE, scope="tenant")
    week = at_most("usd", 640.0, per="week", zone=ZONE)
    per_request = (at_most("usd", 5.5), at_most("gpu", 1.2), at_least(NEW, 0.4))
    largest = {"usd": (2.0, 5.0, 4.0, 1.5, 2.5, 9.0, 2.2, 3.5)}
    noisy = CallCosts({"usd": (1.3, 1.2, 3.6, 1.5, 1.0, 3.1, 2.2, 0.4)}, noise=0.3)
    tenants = ("t0", "t0", "t1", "t2")
    return {
        "per request": LimitKind(per_request),
        "two-sided": LimitKind((at_least("usd", 4.0), at_most("usd", 5.0)), period=70),
        "minimum share": LimitKind((at_least(NEW, 0.4), at_least(SMALL, 0.9)), period=50),
        "hour": LimitKind((at_most("usd", 16.0, per="hour", zone=ZONE),)),
        "day": LimitKind((day,)),
        "week": LimitKind((week,)),
        "month": LimitKind((at_most("usd", 420.0, per="month", zone=ZONE),), pause_s=30_000.0),
        "nested": LimitKind((at_most("usd", 16.0, per="hour", zone=ZONE), day, week)),
        "tenant": LimitKind(
            (tenant_day, at_most("usd", 200.0, per="week", zone=ZONE, scope="tenant")),
            tenants=tenants,
        ),
        "contexts": LimitKind(
            (
                at_most("usd", 5.0, where={"context": ["a"]}),
                at_least(NEW, 0.5, where={"context": ["b", "c"]}),
                at_most("usd", 48.0, per="day", zone=ZONE, where={"context": ["b"]}),
            ),
            contexts=("a", "b", "c"),
        ),
        "average maximum": LimitKind((at_most(SMALL, 1.5, per="day", zone=ZONE),)),
        "average minimum": LimitKind((at_least(NEW, 0.4, per="day", zone=ZONE),)),
        "averages": LimitKind(
            (
                at_least(NEW, 0.4, per="day", zone=ZONE),
                at_most(SMALL, 1.5, per="hour", zone=ZONE),
                at_least(SMALL, 0.6, per="week", zone=ZONE),
            )
        ),
        "opposing averages": LimitKind(
            (at_least(NEW, 0.4, per="day", zone=ZONE), at_most(NEW, 0.6, per="day", zone=ZONE))
        ),
        "averages of tenants": LimitKind(
            (
                at_least(NEW, 0.3, per="day", zone=ZONE, scope="tenant"),
                at_most(NEW, 1.2, per="day", zone=ZONE, scope="tenant"),
            ),
            tenants=tenants,
        ),
        "average and period": LimitKind(
            (at_most("usd", 4.0), at_least(NEW, 0.4, per="day", zone=ZONE))
        ),
        "average and total": LimitKind(
            (day.at(100.0), at_least(NEW, 0.4, per="day", zone=ZONE)), promised="totals"
        ),
        "learned costs": LimitKind(per_request, calls=noisy, promised="none"),
        "learned costs, day": LimitKind((day,), calls=noisy, promised="none"),
        "largest costs": LimitKind((at_most("usd", 7.0),), max_costs=largest, calls=noisy),
        "largest costs, day": LimitKind((day,), max_costs=largest, calls=noisy),
        "largest costs, tenant": LimitKind(
            (tenant_day,), max_costs=largest, calls=noisy, tenants=tenants
        ),
    }


KINDS = list_kinds()


class ContractPlay:
    """A router that is given requests of a kind one after the other."""

    def __init__(
        self, policy: str | Policy | Auto | PlainPolicy, kind: LimitKind, seed: int
    ) -> None:
        problem = kind.make_problem()
        self.now = START
        self.router = Router(problem, policy, seed=seed, clock=lambda: self.now)
        self.calls = kind.calls.bind(problem) if kind.calls else make_declared_costs(problem)
        self.played: list[Request] = []

    def run(self, requests: Sequence[Request]) -> list[Decision | None]:
        """Play requests, and return the decisions on all that were played."""
        for n, request in enumerate(requests, len(self.played)):
            self.now = request.at
            self.played.append(request)
            labels = request.context, request.available
            with suppress(BudgetSpent):
                request.decision = self.router.decide(*labels, tenant=request.tenant)
                draws = place_draws(request.decision)
                request.costs = draw_call_costs(self.calls, draws, RngKey(self.router.seed, n))
            for earlier in self.played[-LONGEST_LAG:]:
                if earlier.due == n and earlier.decision is not None:
                    draws = place_draws(earlier.decision)
                    spend = report_calls(self.calls, self.router.problem, draws, earlier.costs)
                    reward = float(earlier.values[draws].max())
                    self.router.reward(earlier.decision.id, reward, spend=spend)
        return [request.decision for request in self.played]


def place_draws(decision: Decision) -> Any:
    """Return the number of the expert of each draw."""
    return np.array([EXPERTS.index(name) for name in decision.draws])


def judge_windows(
    problem: Problem, played: Sequence[Request]
) -> dict[tuple[Limit, str, str], bool]:
    """Return by limit, tenant and window of a play whether the limit was missed.

    Totals are judged in every window, averages in those that are over.
    """
    period = problem.period or 1
    spent: dict[tuple[Limit, str, str], list[float]] = defaultdict(list)
    counted: dict[tuple[Limit, str], int] = defaultdict(int)
    for request in played:
        for j, limit in enumerate(problem.limits):
            if request.decision and (not limit.where or request.context in limit.where):
                tenant = str(request.tenant) if limit.scope else ""
                window = name_window(limit, request.at, counted[limit, tenant] // period)
                counted[limit, tenant] += 1
                spent[limit, tenant, window].append(float(request.costs[j].sum()))
    judged = {}
    for (limit, tenant, window), costs in spent.items():
        bound = limit.bound * (1 if limit.is_total else len(costs))
        missed = limit.sign * (bound - sum(costs)) > TOLERANCE * bound
        is_over = window != name_window(limit, played[-1].at, -1)
        if limit.is_total or (is_over if limit.per else len(costs) == period):
            judged[limit, tenant, window] = missed
    return judged


def name_window(limit: Limit, at: float, period: int) -> str:
    """Return the window of an instant, as its local time is written, or the number of a period."""
    local = datetime.fromtimestamp(at, ZoneInfo(limit.zone))
    return local.strftime(WINDOW_FORMATS[limit.per]) if limit.per else str(period)


class PolicyContract:
    """Tests of a policy under every kind of limit; subclass it in a file of tests.

    Attributes
    ----------
    policy
        The policy: a name, settings, or an object in plain Python. Its guard must be on.
    seeds
        How many plays there are of each kind.

    Examples
    --------
    >>> class TestTangent(PolicyContract):
    ...     policy = "tangent"
    """

    policy: str | Policy | Auto | PlainPolicy
    seeds: int = 2

    def start(self, kind: str, seed: int) -> ContractPlay:
        """Return a play; where the router is refused when it is created, the test is skipped."""
        try:
            return ContractPlay(self.policy, KINDS[kind], seed)
        except (PolicyError, ProblemError) as error:
            pytest.skip(f"refused: {error}")

    @pytest.mark.parametrize("kind", KINDS)
    def test_limits_are_kept_or_refused(self, kind: str) -> None:
        """No period and no window ends outside a limit, however late rewards come."""
        promised = KINDS[kind].promised
        for seed in range(self.seeds):
            play = self.start(kind, seed)
            play.run(KINDS[kind].list_requests(seed))
            for key, missed in judge_windows(play.router.problem, play.played).items():
                is_promised = promised == "all" or (promised == "totals" and key[0].is_total)
                assert not (missed and is_promised), f"seed {seed}: {key} was missed"

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_seed_fixes_the_play(self, kind: str) -> None:
        """Two routers of one seed decide the same."""
        played = [self.start(kind, 0).run(KINDS[kind].list_requests(0)) for _ in range(2)]
        assert played[0] == played[1]

    @pytest.mark.parametrize("kind", [name for name in KINDS if KINDS[name].tenants == (None,)])
    def test_simulator_and_router_play_the_same(self, kind: str) -> None:
        """The simulator, which knows no tenants, draws the panels that a router draws."""
        play = self.start(kind, 3)
        requests = KINDS[kind].list_requests(3)
        names = KINDS[kind].contexts
        for n, request in enumerate(requests):
            request.due = n
        trace = simulate(
            play.router.problem,
            Given(
                [[one.values] for one in requests], [names.index(one.context) for one in requests]
            ),
            self.policy,
            rounds=len(requests),
            seed=3,
            calls=KINDS[kind].calls,
            times=np.array([round(1e6 * request.at) for request in requests]),
            context_names=names,
        )
        for n, decision in enumerate(play.run(requests)):
            panel = [-1] * 3 if decision is None else place_draws(decision).tolist()
            assert trace.draws[n].tolist() == panel, f"request {n}"

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_saved_router_goes_on_the_same(self, kind: str, tmp_path: Path) -> None:
        """A router that was saved and loaded decides as one that was not."""
        play = self.start(kind, 4)
        requests = KINDS[kind].list_requests(4)
        play.run(requests[: REQUESTS // 2])
        if play.router.policy.name == "plain":
            pytest.skip("a policy in plain Python cannot be saved")
        play.router.save(tmp_path / "router.bylot")
        later = deepcopy(play)
        later.router = Router.load(tmp_path / "router.bylot", clock=lambda: later.now)
        expected = play.run(deepcopy(requests[REQUESTS // 2 :]))
        assert later.run(requests[REQUESTS // 2 :]) == expected

    @pytest.mark.parametrize("kind", KINDS)
    def test_panels_have_different_available_experts(self, kind: str) -> None:
        """No expert is asked twice, or while it is not available."""
        requests = KINDS[kind].list_requests(5, outages=True)
        for request, decision in zip(requests, self.start(kind, 5).run(requests), strict=True):
            if decision is not None:
                members = set(decision.subset)
                assert 0 < len(decision.subset) == len(members)
                assert members <= set(request.available or EXPERTS)
                assert decision.propensity is None or 0.0 < decision.propensity <= 1.0
