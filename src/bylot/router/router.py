"""Router: the in-memory router with its public API: decide, reward, save and resume."""

import copy
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from bylot import policies
from bylot._scopes import KeyArguments
from bylot.errors import BudgetSpent, DecisionError, PolicyError, RewardConflict, RewardError
from bylot.limits.keys import TenantWindow, list_given_keys
from bylot.limits.request import Ticket
from bylot.numerics.jit import Bools
from bylot.policies.base import FeedbackKind
from bylot.policies.compiled_handle import BookedDecision
from bylot.policies.registry import (
    MAX_UNDECLARED_CONTEXTS,
    check_max_contexts,
    check_panel_size,
    describe_smaller_panels,
    fill_auto_contexts,
)
from bylot.policies.validation import check_at_least_one, check_run_config
from bylot.problem import Limit, Problem
from bylot.problem.instants import LAST_SECOND, describe_reset
from bylot.problem.limits import check_limit_list, float_from_real
from bylot.router import feedback as reports
from bylot.router import persistence
from bylot.router.core import NO_LABELS, RequestLabels, RouterCore
from bylot.router.core_status import report_status
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus


class Router:
    """Draws a panel for every request and learns from what is reported about it. Thread-safe.

    Parameters
    ----------
    problem : Problem
        The experts, their costs and the limits.
    policy : str or Policy
        'distinct' asks exactly M different experts; so does 'noisy-or', which learns faster but
        records no propensities; 'tangent' draws M times with replacement, as the paper's own 'omd'
        does; `bylot.policies.POLICIES` has more. 'auto' uses 'distinct', or 'tangent' if panels of
        M experts cannot keep the limits; where scores of members or winners are declared, it uses
        'noisy-or', which learns from them, unless 'auto:propensities=true' demands propensities. An
        object in plain Python is played as it is, slowly: see `bylot.policies.PlainPolicy`.
    seed : int
        Seed of all random draws.
    horizon : int, optional
        Number of decisions to come, if known; without it the policy works for any number.
    rewards : tuple of float
        Range of the rewards and scores; the policy learns on [0, 1].
    feedback : {"panel", "members", "winner"}
        What will be reported: the reward of the panel; also a score of each member, some of which
        may be missing; or also the member that earned the reward. It warns if the policy learns
        from the reward alone.
    guard : bool, optional
        Whether to replace panels after which the limits could not be kept. By default on for
        'distinct', 'noisy-or', 'tangent' and objects in plain Python, off for the paper's policies.
    max_contexts : int, optional
        Largest number of contexts, which are created when first seen; by default 100,000, or as
        many as the policy has capacity for.
    memory : int
        Number of decisions kept open for their rewards; older ones are dropped.
    clock : callable
        Returns the time in seconds since 1970, for limits per hour, day, week or month.

    Raises
    ------
    ProblemError, PolicyError, RewardError
        If an argument is invalid.
    InfeasibleLimits
        If no policy can keep all limits.

    Examples
    --------
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
        policy: str | policies.Policy | policies.Auto | policies.PlainPolicy = "auto",
        *,
        seed: int = 0,
        horizon: int | None = None,
        rewards: tuple[float, float] = (0.0, 1.0),
        feedback: FeedbackKind = "panel",
        guard: bool | None = None,
        max_contexts: int | None = None,
        memory: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        run = check_run_config(problem, seed, horizon, rewards, feedback)
        filled = fill_auto_contexts(policy, max_contexts)
        check_panel_size(filled, problem)
        resolved = policies.resolve_policy(filled, problem, feedback, guard)
        ignored = policies.describe_ignored_feedback(resolved, feedback)
        smaller = describe_smaller_panels(filled, problem)
        for warning in filter(None, (ignored, smaller)):
            warnings.warn(warning, stacklevel=2)
        if max_contexts is not None:
            check_max_contexts(resolved, problem.size, max_contexts)
        core = RouterCore(problem, resolved, run, max_contexts or MAX_UNDECLARED_CONTEXTS)
        self._start(core, check_at_least_one("memory", memory), {})
        self.clock = check_clock(clock)

    def _start(
        self,
        core: RouterCore,
        memory: int,
        tickets: persistence.OpenDecisionsByT,
        settled: persistence.SettledByT | None = None,
        labels: persistence.LabelsByT | None = None,
    ) -> None:
        self.core, self.memory, self.clock = core, memory, time.time
        self.open = tickets  # a decision until its reward arrives, then what was reported
        self.settled = settled or {}  # costs that were reported without a reward
        self.labels = labels or {}  # of open decisions, if limits depend on them
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<Router of {self.problem.size} experts after {self.t} decisions>"

    def __getstate__(self) -> persistence.RouterParts:
        return self.core, self.memory, self.open, self.settled, self.labels

    def __setstate__(self, parts: persistence.RouterParts) -> None:
        self._start(*parts)

    def __copy__(self) -> "Router":
        return copy.deepcopy(self)  # two routers cannot share arrays

    def __deepcopy__(self, memo: dict[int, Any]) -> "Router":
        made = Router.__new__(Router)
        made._start(*copy.deepcopy(self.__getstate__(), memo))
        made.clock = self.clock
        return made

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits."""
        return self.core.problem

    @property
    def policy(self) -> policies.Policy:
        """The policy and its settings."""
        return self.core.policy

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return self.core.run.seed

    @property
    def horizon(self) -> int | None:
        """Number of decisions to come, if it was declared."""
        return self.core.run.horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """Range of the rewards."""
        return self.core.run.low, self.core.run.high

    @property
    def feedback(self) -> FeedbackKind:
        """What is reported: 'panel', 'members' or 'winner'."""
        return self.core.run.feedback

    @property
    def t(self) -> int:
        """Decisions so far."""
        return self.core.t

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        **names: Unpack[KeyArguments],
    ) -> Decision:
        """Draw a panel for one request.

        Parameters
        ----------
        context : str, optional
            The kind of request. Each context has its own distribution; with `distinct` and
            `noisy-or`, contexts share what they learn.
        available : iterable of str, optional
            The experts that can be asked now, by default all.
        **names
            Whose limits count the request too: ``tenant="acme"`` is needed if there are limits with
            scope='tenant', and not allowed if there are none.

        Returns
        -------
        Decision
            The panel, with its costs and probabilities.

        Raises
        ------
        DecisionError
            If no expert is available, a name is unknown, or there are too many contexts.
        BudgetSpent
            If a budget of the calendar leaves no panel until its window ends.
        """
        keys = list_given_keys(names)
        with self._lock:
            core = self.core
            at = 0
            mask = core.mask_available(available)
            if keys or core.problem.needs_guard:
                at = self._read_clock()
                self._check_budgets(at, mask, RequestLabels(context, keys))
            booked = core.decide(context, mask, at, keys=keys)
            ticket = booked.ticket
            self.open[ticket.t] = booked
            if ticket.t >= self.memory:
                self._forget(ticket.t - self.memory)
            if core.reads_labels:
                self.labels[ticket.t] = RequestLabels(context, keys)
            experts, costs, p = core.problem.experts, core.cost_names, booked.propensity
            spend, expected = booked.costs.tolist()  # which `change` replaces
        draws = tuple([experts[i] for i in ticket.draws.tolist()])
        # Of one length each: to check that, or to name the fields, would take half as long again.
        inclusion = dict(zip(draws, booked.inclusion.tolist()))  # noqa: B905
        known = p == p  # it is not NaN
        return Decision(
            f"d{ticket.t}",
            ticket.t,
            context,
            draws,
            tuple(inclusion),
            dict(zip(costs, spend)),  # noqa: B905
            dict(zip(costs, expected)),  # noqa: B905
            ticket.feasible,
            tuple(ticket.draw_probabilities.tolist()) or None,
            inclusion if known else None,
            p if known else None,
            ticket.replaced,
            keys,
        )

    def _check_budgets(self, at: int, mask: Bools, labels: RequestLabels) -> None:
        """Refuse a request, and count it, if a budget of the calendar leaves no panel."""
        try:
            self.core.check_budgets(at, mask, *labels)
        except BudgetSpent as error:
            self.core.count_refused(at, 1)
            reset = describe_reset(error.resets_at, error.limit.zone)
            error.remedy = f"{reset}, or raise the bound"
            raise

    def _forget(self, t: int) -> None:
        """Forget an open decision: `memory` others were made since."""
        self.open.pop(t, None)
        self.settled.pop(t, None)
        self.labels.pop(t, None)

    def _read_clock(self) -> int:
        """Microseconds since 1970, if any limit needs the time."""
        if not self.core.follows_clock:
            return 0
        given = self.clock()
        now = float_from_real(given)
        if now is None or not 0 <= now <= LAST_SECOND:
            expected = "seconds since 1970 as a number, before the year 10000"
            raise DecisionError("time of the clock", got=given, expected=expected)
        return round(1e6 * now)

    def reward(
        self,
        id: str,
        value: float | None = None,
        *,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: reports.SpendReport | None = None,
    ) -> Receipt:
        """Report the reward of a decision, or before it only what it cost: once, in any order.

        Parameters
        ----------
        id : str
            The id of the decision.
        value : float, optional
            The reward of the panel, in the declared range; True is 1 and False is 0. Without it,
            the best of the scores of members.
        members : mapping, optional
            The score of each member by itself, in the same range; a missing one is unknown, not 0.
            For routers with feedback='members'.
        winner : str, optional
            The member that earned the reward. For routers with feedback='winner'.
        spend : mapping, optional
            Actual costs by name, each a total of the panel or a cost for every member:
            ``{"usd": 1.5}`` or ``{"usd": {"ann": 1.2, "bob": 0.3}}``; others are as stated.
            Without value, members and winner, they are booked, and the decision still waits for
            its reward; costs that come with that correct them.

        Returns
        -------
        Receipt
            What the router did with it.

        Raises
        ------
        RewardError
            If a number is not in the declared range, a name is not of the panel, or the router was
            not created for such feedback.
        RewardConflict
            If something else was reported about the decision before.
        """
        if not isinstance(id, str):
            raise RewardError("decision id", got=id, expected="a string", remedy="pass decision.id")
        core, run = self.core, self.core.run
        report, score = None, 0.0
        if members is None and winner is None and spend is None:
            score = reports.check_score(run, value, id)
        else:
            report = reports.check_report(core.problem, run, id, value, members, winner, spend)
        t = t_from_decision_id(id)
        with self._lock:
            booked = None if t is None else self.open.get(t)
            if t is None or booked is None:
                return Receipt.UNKNOWN if t is None or t >= self.t else Receipt.LATE
            if report is not None and report.value is None:
                return self._settle_costs(t, booked, report)
            if isinstance(booked, persistence.EarlierDecision):
                if report is not None and report.spend:
                    self._book_spend(t, booked, report)
                    known = self.settled.get(t, reports.RewardReport(None))
                    costs = {**(known.spend or {}), **report.spend}
                    by_member = {**(known.member_spend or {}), **(report.member_spend or {})}
                    self.settled[t] = reports.RewardReport(
                        None, spend=costs, member_spend=by_member or None
                    )
                return Receipt.LATE
            if not isinstance(booked, BookedDecision):
                was = reports.RewardReport(booked) if isinstance(booked, float) else booked
                reports.check_same_report(was, report or reports.RewardReport(score), id)
                return Receipt.DUPLICATE
            if report is None:
                core.learn(booked.ticket, score)
                self.open[t] = score
            else:
                self._book_spend(t, booked, report)
                self._learn_report(booked.ticket, report)
                self.open[t] = report
            return Receipt.LEARNED

    def _settle_costs(
        self,
        t: int,
        booked: BookedDecision | persistence.EarlierDecision | reports.RewardReport | float,
        report: reports.RewardReport,
    ) -> Receipt:
        """Book costs that were reported without a reward; once, and not after it."""
        if t in self.settled:
            reports.check_same_report(self.settled[t], report, f"d{t}")
            return Receipt.DUPLICATE
        if isinstance(booked, float | reports.RewardReport):
            remedy = f"report costs with the reward, or before it; {reports.NOTHING_CHANGED}"
            raise RewardConflict(f"decision d{t} already has its reward", remedy=remedy)
        self._book_spend(t, booked, report)
        self.settled[t] = report
        return Receipt.SETTLED

    def _book_spend(
        self,
        t: int,
        booked: BookedDecision | persistence.EarlierDecision,
        report: reports.RewardReport,
    ) -> None:
        """Check a report, and book its costs; the first report of each cost teaches."""
        core = self.core
        ticket = booked.ticket if isinstance(booked, BookedDecision) else None
        panel, stated = self._describe_booked(booked)
        reports.check_panel_names(report, panel, f"d{t}")
        reports.check_spend_range(report.spend, core.problem)
        known = self.settled[t].spend or {} if t in self.settled else {}
        before = {**stated, **known}
        more = {name: cost - before.get(name, 0.0) for name, cost in (report.spend or {}).items()}
        new = {name: cost for name, cost in more.items() if name not in known}
        again = {name: cost for name, cost in more.items() if name in known}
        reports.check_corrections(report.spend or {}, known, core.list_certain_costs(), f"d{t}")
        labels = self.labels.get(t, NO_LABELS)
        if new:
            by_member, held = report.member_spend, booked.held
            core.settle(ticket, new, by_member, t=t, labels=labels, panel=panel, held=held)
        if again:
            core.settle(None, again, t=t, labels=labels)

    def _describe_booked(
        self, booked: BookedDecision | persistence.EarlierDecision
    ) -> tuple[Sequence[str], Mapping[str, float]]:
        """Return the name of each draw, and the stated cost of the panel."""
        if isinstance(booked, persistence.EarlierDecision):
            return booked.panel, booked.spend
        return self._name_panel(booked.ticket), self.core.name_costs(booked.costs[0])

    def _learn_report(self, ticket: Ticket, report: reports.RewardReport) -> None:
        """Learn from all that was reported about a decision but its costs."""
        assert report.value is not None, "costs alone are settled, not learned from"
        panel = self._name_panel(ticket)
        scores, won = reports.arrange_feedback(report.members, report.winner, panel, ticket)
        self.core.learn(ticket, report.value, scores, won)

    def _name_panel(self, ticket: Ticket) -> list[str]:
        """The name of each draw."""
        return [self.problem.experts[i] for i in ticket.draws.tolist()]

    def change(self, problem: Problem) -> None:
        """Continue under another problem, with all that was learned.

        If the experts or the number of draws change, nothing is learned from open decisions any
        more: their probabilities are not those of this pool. What they cost is still booked. Sums
        of a cost continue under its name.

        Parameters
        ----------
        problem : Problem
            The new problem.

        Raises
        ------
        InfeasibleLimits, PolicyError
            If the limits cannot be kept; nothing was changed.
        """
        with self._lock:
            old, problem = list(self.core.problem.costs), self.core.keep_traffic(problem)
            experts = self.core.problem.experts
            if not self.core.change_problem(problem, at=self._read_clock()):
                for t, booked in self.open.items():
                    if isinstance(booked, BookedDecision):
                        panel = tuple(experts[i] for i in booked.ticket.draws.tolist())
                        spend = dict(zip(old, booked.costs[0].tolist(), strict=True))
                        earlier = persistence.EarlierDecision(panel, spend, booked.held)
                        self.open[t] = earlier
            elif old != list(problem.costs):
                for one in self.open.values():
                    if isinstance(one, BookedDecision):
                        by_name = dict(zip(old, one.costs.T, strict=True))
                        rows = [by_name.get(name, (0.0, 0.0)) for name in problem.costs]
                        one.costs = np.array(rows).reshape(-1, 2).T

    def set_tenant(self, tenant: str, limits: Iterable[Limit] = ()) -> None:
        """Give a tenant bounds of its own.

        Parameters
        ----------
        tenant : str
            The name of the tenant.
        limits : iterable of Limit
            Budgets of the problem with scope='tenant', with the bounds of this tenant, such as
            ``[at_most("usd", 50, per="month", scope="tenant")]``. They replace those that it had;
            without any, the bounds of all tenants apply to it.

        Raises
        ------
        TenantError
            If the problem has no such limits.
        """
        own = check_limit_list(limits)
        with self._lock:
            self.core.get_keyed().set_bounds(("tenant", tenant), own)

    def tenant(self, tenant: str) -> list[TenantWindow]:
        """Say what a tenant has spent in the current windows.

        Parameters
        ----------
        tenant : str
            The name of the tenant; one that is not known has spent nothing.

        Returns
        -------
        list of TenantWindow
            One for each limit with scope='tenant'.
        """
        with self._lock:
            return self.core.measure_key("tenant", tenant, self._read_clock())

    def status(self) -> RouterStatus:
        """Summarise the router.

        Returns
        -------
        RouterStatus
            Averages so far, the slack and price of every limit, and the current distribution.
        """
        with self._lock:
            waiting = sum(isinstance(one, BookedDecision) for one in self.open.values())
            return report_status(self.core, waiting=waiting, at=self._read_clock())

    def save(self, path: str | Path) -> None:
        """Write everything to a file atomically; `load` continues bit for bit.

        A process that is killed meanwhile may leave a file .NAME….bylot-part, which can be deleted.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        SavedFileError
            If the file cannot be written.
        """
        with self._lock:
            data = persistence.router_to_data(*self.__getstate__())
        persistence.write_saved_file(Path(path), data)

    @classmethod
    def load(cls, path: str | Path, *, clock: Callable[[], float] = time.time) -> "Router":
        """Read a router that `save` has written.

        Parameters
        ----------
        path : str or Path
            The file.
        clock : callable
            As in `Router`; it is not saved.

        Returns
        -------
        Router
            The router, as it was saved.

        Raises
        ------
        SavedFileError
            If the file is missing, damaged, or of an unsupported version.
        """
        router = cls.__new__(cls)
        router._start(*persistence.load_router(Path(path)))
        router.clock = check_clock(clock)
        return router


def check_clock(clock: Callable[[], float]) -> Callable[[], float]:
    """Return the clock, if it can be called."""
    if not callable(clock):
        remedy = "give a function without arguments that returns the seconds since 1970"
        raise PolicyError("clock", got=clock, expected="a function", remedy=remedy)
    return clock


def t_from_decision_id(id: str) -> int | None:
    """The t of a decision's id, or None if no decision can have it."""
    try:
        t = int(id[1:])
    except ValueError:
        return None
    return t if 0 <= t < 10**18 and id == f"d{t}" else None
