"""A router to hold in the hand: ask it for panels, tell it rewards, stop it and go on later."""

import copy
import math
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bylot import policies
from bylot._text import announce_if_slow
from bylot.errors import (
    DecisionError,
    PolicyError,
    RewardConflict,
    RewardError,
    SavedFileError,
)
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies.base import BoundPolicy, Ticket, has_same_pool
from bylot.policies.budget import cancel_round, correct_spend, count_played_rounds, report_budget
from bylot.policies.capacity import (
    MAX_UNDECLARED_CONTEXTS,
    check_max_contexts,
    fill_auto_contexts,
    limit_contexts,
)
from bylot.policies.compiled_handle import (
    BookedDecision,
    CompiledHandle,
    Totals,
    average_distribution,
    decide_and_book,
    learn_reward,
    make_totals,
)
from bylot.policies.validation import (
    RunConfig,
    check_at_least_one,
    check_run_config,
    is_reward_in_range,
)
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.router import persistence
from bylot.router.decision import Decision, Receipt
from bylot.router.status import (
    CostStatus,
    LimitInPeriod,
    PeriodStatus,
    RouterStatus,
    count_effective_experts,
    make_limit_status,
)

MAX_ABS_REWARD = 1e300  # a reward beyond it is not a number to learn from
COMPILED_HANDLE_TYPES: set[Any] = set()  # the types of desks that were compiled in this process


class Router:
    """Draws a panel for every request and learns from one reward per panel.

    policy:       'distinct' asks exactly M different experts, 'noisy-or' too, and learns faster
                  but records no propensities; 'tangent' draws M times with replacement, as the paper's own
                  'omd' does; `bylot.policies.POLICIES` has more. 'auto' takes 'distinct', or
                  'tangent' where panels of M experts cannot keep the limits
    horizon:      decisions to come, if known; without it the policy works for ever
    rewards:      the range rewards are given in; learning maps it to [0, 1]
    max_contexts: contexts are made when first seen, up to this many; None: 100,000, or as many as
                  the policy has room for
    memory:       decisions held while their reward may still come; older ones are let go

    >>> from bylot.problem import Problem, at_most
    >>> pool = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, [at_most("usd", 4)], draws=2)
    >>> router = Router(pool, seed=7)
    >>> decision = router.decide()
    >>> router.reward(decision.id, 0.5)
    <Receipt.LEARNED: 'learned'>
    """

    def __init__(
        self,
        problem: Problem,
        policy: str | policies.Policy | policies.Auto = "auto",
        *,
        seed: int = 0,
        horizon: int | None = None,
        rewards: tuple[float, float] = (0.0, 1.0),
        max_contexts: int | None = None,
        memory: int = 100_000,
    ) -> None:
        terms = check_run_config(problem, seed, horizon, rewards)
        self.policy = policies.resolve_policy(fill_auto_contexts(policy, max_contexts), problem)
        self.seed, self.horizon, self.rewards = seed, horizon, (terms.low, terms.high)
        self.max_contexts = (
            MAX_UNDECLARED_CONTEXTS
            if max_contexts is None
            else check_max_contexts(self.policy, problem.size, max_contexts)
        )
        self.memory = check_at_least_one("memory", memory)
        rule = self.policy.bind(problem, horizon)
        self.furnish(problem, rule, self.policy.start(rule), make_totals(len(problem.costs)))

    @classmethod
    def resumed(
        cls,
        problem: Problem,
        policy: policies.Policy,
        terms: RunConfig,
        *,
        max_contexts: int,
        rule: Any,
        state: Any,
        ledger: Totals,
        contexts: Iterable[str | None],
        since: Mapping[str, int],
        unused: Mapping[str, int],
        period: tuple[int, int],
        skipped: Iterable[int],
    ) -> "Router":
        """A router from what another was made of, which is trusted: nothing is solved anew. It
        holds no decisions.
        """
        router = cls.__new__(cls)
        router.policy = policy
        router.seed, router.horizon, router.rewards = (
            terms.seed,
            terms.horizon,
            (terms.low, terms.high),
        )
        router.max_contexts, router.memory = max_contexts, 1
        router.furnish(problem, rule, state, ledger)
        router.contexts.update((label, n) for n, label in enumerate(contexts))
        router.since.update(since)
        router.unused.update(unused)
        router.period, router.skipped = period, list(skipped)
        return router

    def furnish(self, problem: Problem, rule: Any, state: Any, ledger: Totals) -> None:
        """Everything that is not a setting."""
        self.contexts: dict[str | None, int] = {}
        self.held: dict[int, Ticket | float] = {}  # a ticket until its reward is known
        self.since: dict[str, int] = {}  # decisions that were made before there was a cost
        self.unused: dict[str, int] = {}  # decisions since then that were taken back
        self.period = 0, 0  # see `withdraw`
        self.skipped: list[int] = []  # visits by context that a change has made up: see `visits`
        self._all_up = np.empty(0, np.bool_)
        self._lock = threading.RLock()
        self.face(problem, rule, ledger)
        self.seat(state)
        self.warm()

    def face(self, problem: Problem, rule: Any, ledger: Totals) -> None:
        """Take a problem, and what follows from it."""
        self.problem, self.rule, self.ledger = problem, rule, ledger
        self._index = {name: i for i, name in enumerate(problem.experts)}
        self._costs: Floats = np.array(list(problem.costs.values())).reshape(-1, problem.size)

    def __repr__(self) -> str:
        return f"<Router of {self.problem.size} experts after {self.t} decisions>"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but the handle and the lock, which are made anew."""
        return {name: value for name, value in vars(self).items() if name not in ("_desk", "_lock")}

    def __copy__(self) -> "Router":
        # Two routers cannot share arrays: one that makes room for a context would leave the other.
        return copy.deepcopy(self)

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self._lock = threading.RLock()
        self.seat(self.state)

    def seat(self, state: Any) -> None:
        """Take a state, and hand it with all else to the compiled side."""
        self.state = state
        self._desk = CompiledHandle(self.rule, state, self.ledger, self._costs)

    def warm(self) -> None:
        """Compile now, on a scratch state, so that no request has to wait for it."""
        kind = self._desk._numba_type_
        if kind in COMPILED_HANDLE_TYPES:
            return
        low, high = self.rewards
        scratch = make_totals(len(self.problem.costs))
        desk = CompiledHandle(self.rule, self.policy.start(self.rule), scratch, self._costs)
        with announce_if_slow("... compiling, once for this version on this machine"):
            learn_reward(desk, decide_and_book(desk, 0, 0, 0, self._all_up).ticket, low, low, high)
            self.standing(self._all_up)
        COMPILED_HANDLE_TYPES.add(kind)

    @property
    def t(self) -> int:
        """Decisions so far."""
        return int(self.ledger.rounds[0])

    def decide(
        self, context: str | None = None, available: Iterable[str] | None = None
    ) -> Decision:
        """Draw a panel for one request, from the experts that are up now if that is said."""
        up = self.up(available)
        with self._lock:
            served = self.draw(context, up)
            self.hold(served.ticket)
        return self.decision(served, context)

    def draw(self, context: str | None, up: Bools) -> BookedDecision:
        """Draw a panel and owe its cost; what its reward will need is the caller's to keep.

        For callers that are alone with the router, as is `learn`.
        """
        number = self.context(context)
        return decide_and_book(self._desk, number, self.seed, self.t, up)

    def learn(self, ticket: Ticket, value: float) -> None:
        """Learn from a reward that `fitting` has let pass."""
        learn_reward(self._desk, ticket, value, *self.rewards)

    def ahead(self, context: int, up: Bools) -> Any:
        """The state that the next decision in this context would leave behind. A law moves when a
        decision is due to move it, so that the last one made is not the law of the next.
        """
        with self._lock:
            state = copy.deepcopy(self.state)
            desk = CompiledHandle(
                self.rule, state, make_totals(len(self.problem.costs)), self._costs
            )
            decide_and_book(desk, context, self.seed, self.t, up)
        return state

    def reward(self, id: str, value: float) -> Receipt:
        """Tell how well a decision went: once, at any time, in any order."""
        if not isinstance(id, str):
            raise RewardError(f"{type(id).__name__} {id!r} is no id; pass decision.id, a string")
        value = self.fitting(value, id)
        with self._lock:
            return self.credit(t_from_decision_id(id), value)

    def fitting(self, value: Any, id: str) -> float:
        """A reward that can be learned from, or an error."""
        low, high = self.rewards
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise RewardError(f"reward {value!r} is not a number; nothing was changed")
        if isinstance(value, np.floating):
            value = float(value)  # a narrow one cannot be compared with what is beyond it
        if not -MAX_ABS_REWARD < value < MAX_ABS_REWARD:  # NaN fails this too
            raise RewardError(f"reward {value!r} is not finite; nothing was changed")
        if not is_reward_in_range(float(value), low, high):
            raise RewardError(
                f"reward {value} for decision {id} is outside [{low}, {high}]; "
                "nothing was changed; declare a wider range with rewards=(low, high) if it is right"
            )
        return float(value)

    def credit(self, t: int | None, value: float) -> Receipt:
        """Learn from a reward, if its decision is held and has none."""
        if t is None or t >= self.t:
            return Receipt.UNKNOWN
        if t not in self.held:
            return Receipt.LATE
        held = self.held[t]
        if isinstance(held, Ticket):
            self.learn(held, value)
            self.held[t] = value
            return Receipt.LEARNED
        if held != value:
            raise RewardConflict(
                f"decision d{t} already has reward {held}; it cannot become {value}"
            )
        return Receipt.DUPLICATE

    def settle(self, more: Mapping[str, float]) -> None:
        """Book what panels have cost beyond what was stated, by the names of costs; policies with
        a guard go on from there. For callers that are alone with the router.
        """
        self.ledger.spent[:] += [more.get(name, 0.0) for name in self.problem.costs]
        correct_spend(self.problem, self.rule, self.state, more)

    def withdraw(
        self, t: int, spend: Mapping[str, float], expected: Mapping[str, float]
    ) -> dict[str, float]:
        """Decision t, of these costs, was never used: averages are over the others. What was booked
        of it is returned. For callers that are alone with the router.

        If it is of the current period, that has one more decision to come (`cancel_round`); one that
        was made in an earlier period, or before a change, leaves the current one as it is.
        """
        names = [name for name in self.problem.costs if name in spend]
        counted = [name for name in names if t >= self.since.get(name, 0)]
        for sums, given in ((self.ledger.spent, spend), (self.ledger.expected, expected)):
            sums[:] -= [given[name] if name in counted else 0.0 for name in self.problem.costs]
        self.unused.update({name: self.unused.get(name, 0) + 1 for name in counted})
        # The first decision of the period, and the same had as many been made as are played: as
        # long as the period lasts, the second moves with the decisions that are taken back only.
        first, level = self.period
        rounds = count_played_rounds(self.rule, self.state)
        if level != self.t - rounds:
            first = self.t - rounds
        if rounds and t >= first:
            cancel_round(self.problem, self.rule, self.state, spend)
            rounds -= 1
        self.period = first, self.t - rounds
        return {name: spend[name] for name in counted}

    def change(self, problem: Problem) -> None:
        """Go on under another problem, with all that was learned (`policies.carry`).

        Limits that cannot be kept raise an error, and nothing was changed. If other experts can be
        asked, or more or fewer at a time, decisions that wait for their reward are let go: their
        probabilities are not those of this pool. Sums of a cost go on under its name.
        """
        with self._lock:
            check_run_config(problem, self.seed, self.horizon, self.rewards)
            if problem == self.problem:
                return
            old, rule = self.problem, self.rebound(problem)
            before = BoundPolicy(old, self.rule, self.narrowed(problem.size))
            state = self.policy.migrate(before, problem, rule)
            ledger = self.ledger._replace(
                spent=self.renamed(self.ledger.spent, problem),
                expected=self.renamed(self.ledger.expected, problem),
            )
            self.since = {
                name: self.since.get(name, 0) if name in old.costs else self.t
                for name in problem.costs
            }
            self.unused = {name: n for name, n in self.unused.items() if name in problem.costs}
            visits = self.visits()
            self.face(problem, rule, ledger)
            self.seat(state)
            self.skipped = (state.visits[: visits.size] - visits).tolist()
            self.period = self.t, self.t - count_played_rounds(rule, state)
            if not has_same_pool(old, problem):
                self.held = {t: one for t, one in self.held.items() if isinstance(one, float)}

    def rebound(self, problem: Problem) -> Any:
        """The rule for another problem."""
        try:
            return self.policy.bind(problem, self.horizon)
        except PolicyError as error:
            raise error.for_running_router() from None

    def narrowed(self, size: int) -> Any:
        """The state without spare lines, if there is no room for them with so many experts."""
        lines, used = len(self.state.visits), len(self.contexts)
        most = limit_contexts(self.policy, size, lines)
        if most < max(1, used):
            raise PolicyError(
                f"with {size:,} experts there is room for what is remembered of {most:,} contexts, "
                f"and there are {used:,}; add fewer experts, or make a new router with 'distinct'"
            )
        return self.state if most == lines else self.with_room(most)

    def renamed(self, sums: Floats, problem: Problem) -> Floats:
        """Numbers of the costs in the order of another problem's, 0 for new ones."""
        by_name = self.by_cost(sums)
        return np.array([by_name.get(name, 0.0) for name in problem.costs], np.float64)

    def up(self, available: Iterable[str] | None) -> Bools:
        """The experts that are up, as a mask, an empty one standing for all of them."""
        if available is None:
            return self._all_up
        if isinstance(available, str):
            raise DecisionError(f"available={available!r} is one string; give a list of names")
        mask = np.zeros(self.problem.size, np.bool_)
        for name in available:
            if not isinstance(name, str) or name not in self._index:
                remedy = suggest_known_name(name, self.problem.experts, "experts")
                raise DecisionError(f"there is no expert {name!r}; {remedy}")
            mask[self._index[name]] = True
        if not mask.any():
            raise DecisionError("no expert is available, so there is nobody to draw")
        return self._all_up if mask.all() else mask

    def context(self, label: str | None) -> int:
        """The number of a context, new if it was never seen."""
        if label is not None and not isinstance(label, str):
            raise DecisionError(f"context {label!r} is not a string; use str(...) or leave it out")
        if label in self.contexts:
            return self.contexts[label]
        number, most = len(self.contexts), self.room()
        if number >= most:
            full = most < self.max_contexts
            why = f"has room for {most:,}" if full else f"was declared for {most:,}"
            more = "policy='distinct', which remembers less" if full else "a larger max_contexts"
            raise DecisionError(
                f"context {label!r} would be number {number + 1:,}, and this router {why}; "
                f"use coarser contexts, or make a router with {more}"
            )
        if number == len(self.state.visits):
            self.seat(self.with_room(min(2 * number, most)))
        self.contexts[label] = number
        return number

    def room(self) -> int:
        """Contexts that there can be in all."""
        return limit_contexts(self.policy, self.problem.size, self.max_contexts)

    def with_room(self, lines: int) -> Any:
        """The state, with so many lines for contexts."""
        return persistence.resize_arrays(self.state, self.policy.start(self.rule, lines))

    def hold(self, ticket: Ticket) -> None:
        """Keep what the reward will need; let the oldest go when memory is full."""
        self.held[ticket.t] = ticket
        self.held.pop(ticket.t - self.memory, None)

    def decision(self, served: BookedDecision, context: str | None) -> Decision:
        """What the caller gets to see."""
        experts, ticket = self.problem.experts, served.ticket
        draws = tuple([experts[i] for i in ticket.draws.tolist()])
        spend, expected = map(self.by_cost, served.costs)
        known = not math.isnan(served.propensity)
        return Decision(
            id=f"d{ticket.t}",
            t=ticket.t,
            context=context,
            draws=draws,
            subset=tuple(dict.fromkeys(draws)),
            spend=spend,
            expected=expected,
            feasible=ticket.feasible,
            draw_probabilities=tuple(ticket.draw_probabilities.tolist()) or None,
            inclusion=dict(zip(draws, served.inclusion.tolist(), strict=True)) if known else None,
            propensity=served.propensity if known else None,
            replaced=ticket.replaced,
        )

    def status(self) -> RouterStatus:
        """Averages so far, the slack and price of every limit, and the distribution in use."""
        with self._lock:
            return self.standing(self._all_up)

    def standing(self, up: Bools) -> RouterStatus:
        """The status, with the distribution over these experts.

        Not thread-safe: the caller must hold the lock.
        """
        rewards = int(self.ledger.rewards[0])
        means = self.by_cost(self.ledger.spent / self.spans())
        span = self.rewards[1] - self.rewards[0]
        prices = span * self.policy.prices(self.problem, self.rule, self.state)
        now = report_budget(self.problem, self.rule, self.state)
        limits = tuple(
            make_limit_status(one, means[one.name], float(price), now and LimitInPeriod(*now.of(j)))
            for j, (one, price) in enumerate(zip(self.problem.limits, prices, strict=True))
        )
        spent, expected = self.by_cost(self.ledger.spent), self.by_cost(self.ledger.expected)
        q = self.average_law(up).tolist()
        return RouterStatus(
            decisions=self.t,
            rewards=rewards,
            waiting=sum(isinstance(held, Ticket) for held in self.held.values()),
            contexts=len(self.contexts),
            max_contexts=self.room(),
            mean_reward=float(self.ledger.total[0]) / rewards if rewards else None,
            kept=all(one.kept for one in limits),
            limits=limits,
            costs={
                name: CostStatus(spent[name], expected[name], spent[name], self.owing(name))
                for name in self.problem.costs
            },
            q=dict(zip(self.problem.experts, q, strict=True)),
            effective_experts=count_effective_experts(q),
            multinomial=self.policy.draws_iid,
            whole=self.policy.draws_sets,
            period=now and PeriodStatus(now.period, now.played, now.replaced),
        )

    def spans(self) -> Floats:
        """The decisions that each cost was owed in, those taken back not among them; at least 1."""
        return np.maximum(1.0, [float(self.owing(name)) for name in self.problem.costs])

    def owing(self, cost: str) -> int:
        """The decisions since there is this cost, but for those that were taken back."""
        return self.t - self.since.get(cost, 0) - self.unused.get(cost, 0)

    def visits(self) -> Ints:
        """The decisions of every context. A change moves a policy's own count on to where a step is
        due.
        """
        visits: Ints = self.state.visits[: len(self.contexts)].copy()
        visits[: len(self.skipped)] -= np.array(self.skipped, np.int64)
        return visits

    def by_cost(self, sums: Floats) -> dict[str, float]:
        """Numbers under the names of the costs."""
        return dict(zip(self.problem.costs, sums.tolist(), strict=True))

    def average_law(self, up: Bools) -> Floats:
        """The law in use among these, averaged over the contexts as often as they came: the
        distribution of draws, or where a panel is drawn as one set, the chances to be in it.
        """
        visits = self.visits().astype(np.float64)
        there = int(up.sum()) if up.size else self.problem.size
        seats = min(self.problem.draws, there) if self.policy.draws_sets else 1
        return seats * average_distribution(self._desk, visits if visits.any() else np.ones(1), up)

    def save(self, path: str | Path) -> None:
        """Write everything to a file, whole or not at all; `load` continues bit for bit."""
        with self._lock:
            content = persistence.router_to_data(self)
        persistence.write_saved_file(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> "Router":
        """A router as it was saved."""
        data = persistence.read_saved_file(
            Path(path), persistence.SAVED_FILE_FORMAT, persistence.SAVED_FILE_VERSION
        )
        try:
            return persistence.router_from_data(cls, data)
        except (
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            OverflowError,
            MemoryError,
        ) as error:
            raise SavedFileError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def t_from_decision_id(id: str) -> int | None:
    """The t of a decision's id, or None if no decision can have it."""
    digits = id[1:] if id.startswith("d") else ""
    known = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    return int(digits) if known and len(digits) < 19 else None
