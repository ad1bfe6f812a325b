"""Router: the in-memory router with its public API: decide, reward, save and resume."""

import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import structs

from bylot._scopes import KeyArguments
from bylot.errors import DecisionError, DecisionNotFound, PolicyError, RewardError
from bylot.limits.keys import NO_KEYS, TenantWindow, list_given_keys
from bylot.policies import Auto, PlainPolicy, Policy
from bylot.policies.validation import FeedbackKind
from bylot.problem import Limit, Problem
from bylot.problem.instants import LAST_SECOND
from bylot.problem.limits import check_limit_list, float_from_real
from bylot.router.decision import Decision, Receipt
from bylot.router.engine import RouterEngine
from bylot.router.feedback import SpendReport
from bylot.router.memory_engine import create_engine
from bylot.router.status import RouterStatus

if TYPE_CHECKING:
    from bylot.router.past_rounds import PastRound

RECEIPTS = {receipt.value: receipt for receipt in Receipt}


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
        policy: str | Policy | Auto | PlainPolicy = "auto",
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
        self.__setstate__(
            create_engine(
                problem,
                policy,
                seed,
                horizon,
                rewards,
                feedback,
                guard,
                max_contexts,
                memory,
            )
        )
        self.clock = check_clock(clock)

    def __repr__(self) -> str:
        return f"<Router of {self.problem.size} experts after {self.t} decisions>"

    def __getstate__(self) -> RouterEngine:
        with self._lock:
            return copy.deepcopy(self.engine)

    def __setstate__(self, engine: RouterEngine) -> None:
        self.engine = engine
        self.core = engine.core
        self.clock = time.time
        self._lock = threading.RLock()

    def __copy__(self) -> "Router":
        return copy.deepcopy(self)  # two routers cannot share arrays

    def __deepcopy__(self, memo: dict[int, Any]) -> "Router":
        made = Router.__new__(Router)
        made.__setstate__(self.__getstate__())
        made.clock = self.clock
        return made

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits."""
        return self.core.problem

    @property
    def policy(self) -> Policy:
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

    def learn_from(self, rounds: "Iterable[PastRound]") -> None:
        """Learn from a log of another router, or of another system, before the first decision:
        what panels are worth, and what calls cost. Nothing is booked or counted.

        Parameters
        ----------
        rounds : iterable of PastRound
            What was asked and reported, as ``evaluate.select_rounds(log).rounds``.

        Raises
        ------
        PolicyError
            If the policy learns from its own draws only: all but 'noisy-or' do.
        DecisionStateError, DecisionError, RewardError, TooManyContexts
            If the router has made a decision, or a round does not fit it; nothing was learned.

        Examples
        --------
        >>> from bylot.problem import Problem
        >>> from bylot.router.past_rounds import PastRound
        >>> router = Router(Problem(["ann", "bob", "eve"], {}, draws=2), "noisy-or")
        >>> router.learn_from([PastRound(("ann", "bob"), 0.4), PastRound(("ann", "eve"), 1.0)])
        """
        with self._lock:
            self.engine.learn_rounds(tuple(rounds))

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
        keys = list_given_keys(names) if names else NO_KEYS
        with self._lock:
            now = self._read_clock() if self.core.book.follows_clock else 0
            made = self.engine.decide(now, None, context, available, keys)
        return made.show(f"d{made.ticket.t}")

    def _read_clock(self) -> int:
        """Microseconds since 1970, if any limit needs the time."""
        if not self.core.book.follows_clock:
            return 0
        given = self.clock()
        now = float_from_real(given)
        if now is None or not 0 <= now <= LAST_SECOND:
            raise DecisionError(
                "time of the clock",
                got=given,
                expected="seconds since 1970 as a number, before the year 10000",
            )
        return round(1e6 * now)

    def reward(
        self,
        id: str,
        value: float | None = None,
        *,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: SpendReport | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision, or only what it cost: once, at any time, in any order.

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
            Without value, members and winner, they are booked, and a reward may still come; costs
            that come with it correct them.
        key : str, optional
            Identifies one of several reports about the decision.

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
            If something else was reported under this key before.
        """
        if not isinstance(id, str):
            raise RewardError("decision id", got=id, expected="a string", remedy="pass decision.id")
        if key is not None and not isinstance(key, str):
            raise RewardError("key", got=key, expected="a text or None")
        place = t_from_decision_id(id)
        with self._lock:
            try:
                change = self.engine.report(0, place, id, value, members, winner, spend, key)
            except DecisionNotFound:
                return Receipt.LATE if 0 <= place < self.t else Receipt.UNKNOWN
        return Receipt.DUPLICATE if change is None else RECEIPTS[change.receipt]

    def cancel(self, id: str) -> None:
        """Take back a decision that was never used: it has no reward, and no average counts it.

        Parameters
        ----------
        id : str
            The id of the decision.

        Raises
        ------
        DecisionNotFound
            If there is no such decision.
        DecisionStateError
            If something was reported about it.
        """
        with self._lock:
            self.engine.cancel(t_from_decision_id(id), id)

    def replace(self, id: str, failed: str, available: Iterable[str] | None = None) -> Decision:
        """Let another expert take the place of a member that failed.

        Parameters
        ----------
        id : str
            The id of the decision.
        failed : str
            The member.
        available : iterable of str, optional
            The experts that can be asked now, by default all.

        Returns
        -------
        Decision
            The decision with the panel that it has now, without probabilities.

        Raises
        ------
        DecisionNotFound
            If there is no such decision.
        DecisionStateError, NoSubstitute
            If its panel cannot be changed any more, or nobody can take the place.
        """
        with self._lock:
            if isinstance(available, Iterable) and not isinstance(available, str):
                available = tuple(available)
            place = t_from_decision_id(id)
            self.engine.replace(place, id, failed, available)
            decision = self.engine.open.find(place)
            return structs.replace(decision.known.show(id), failed=decision.failed)

    def change(self, problem: Problem) -> None:
        """Continue under another problem, with all that was learned.

        If the experts or the number of draws change, the rewards of open decisions are noted, and
        nothing is learned from them: their probabilities are not those of this pool. What they cost
        is still booked. Sums of a cost continue under its name.

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
            self.engine.edit(self._read_clock(), problem)

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
            self.core.book.get_keyed().set_bounds(("tenant", tenant), own)

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
            return self.core.book.measure_key("tenant", tenant, self._read_clock())

    def status(self) -> RouterStatus:
        """Summarise the router.

        Returns
        -------
        RouterStatus
            Averages so far, the slack and price of every limit, and the current distribution.
        """
        with self._lock:
            return self.engine.report_status(self._read_clock())

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
        from bylot.router.saved_file import encode_engine, write_saved_file

        with self._lock:
            content = encode_engine(self.engine)
        write_saved_file(Path(path), content)

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
        from bylot.router.saved_file import load_engine

        router = cls.__new__(cls)
        router.__setstate__(load_engine(Path(path)))
        router.clock = check_clock(clock)
        return router


def check_clock(clock: Callable[[], float]) -> Callable[[], float]:
    """Return the clock, if it can be called."""
    if not callable(clock):
        raise PolicyError(
            "clock",
            got=clock,
            expected="a function",
            remedy="give a function without arguments that returns the seconds since 1970",
        )
    return clock


def t_from_decision_id(id: str) -> int:
    """Return the t of a decision's id, or -1 if no decision can have it."""
    try:
        t = int(id[1:])
    except (TypeError, ValueError):
        return -1
    return t if 0 <= t < 10**18 and id == f"d{t}" else -1
