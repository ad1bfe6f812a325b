"""The fluid optimum: what panels could earn under limits of the calendar, with all traffic known.

Time is cut at every edge of a window. In each interval the requests are divided among panels, also
in fractions; a request may be refused. It is a linear program over panels and intervals, solved by
column generation as the best mixture is, and the prices of its solution prove how good it is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron, vstack

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.optima.objective import RELATIVE_GAP, ValueStack, stack_values
from bylot.optima.set_search import SetValues, sum_members
from bylot.problem import Problem
from bylot.problem.calendar import list_edges_until
from bylot.problem.window_bounds import require_known_optimum

MAX_ITERATIONS = 200


@dataclass(frozen=True, eq=False)
class FluidOptimum:
    """The best expected reward of all requests together, and of each interval.

    Attributes
    ----------
    value
        Summed over all requests; one that is refused earns 0.
    gap
        Nothing that keeps the limits earns more than value + gap on average.
    starts, requests, rewards, refused
        (I,), the instant at which each interval begins, in microseconds since 1970, its requests,
        what they earn, and how many of them are refused.
    spend
        (I, d), what each interval costs under each limit.
    """

    value: float
    gap: float
    starts: Ints
    requests: Ints
    rewards: Floats
    refused: Floats
    spend: Floats

    @property
    def ceiling(self) -> float:
        """value + gap, which nothing under the limits exceeds."""
        return self.value + self.gap


def fluid_optimum(
    problem: Problem, values: ArrayLike | ValueStack, times: ArrayLike, *, fewer: bool = False
) -> FluidOptimum:
    """Find the most that requests at these times could earn under the limits, in expectation.

    Parameters
    ----------
    problem : Problem
        Experts, costs and limits, of the calendar and per request.
    values : array_like or ValueStack
        Rounds that stand for all requests, as for `optimum`.
    times : array_like of int
        When each request arrives, in microseconds since 1970.
    fewer : bool
        Allow panels of 1 to M experts, as ``when_spent="fewer"`` does.

    Returns
    -------
    FluidOptimum
        The optimum with its certificate.

    Raises
    ------
    ValuesError
        If times or values do not fit.
    ProblemError
        If a limit is on some contexts only. One for each tenant counts all requests here.

    Examples
    --------
    >>> from bylot.problem import at_most
    >>> budget = at_most("usd", 3.0, per="day")
    >>> pair = Problem(["a", "b"], {"usd": [0, 1]}, [budget], draws=1)
    >>> best = fluid_optimum(pair, [[0.2, 1.0]], np.arange(10))  # ten requests in one day
    >>> round(best.value, 9), best.spend.round(9).tolist()
    (4.4, [[3.0]])
    """
    require_known_optimum(problem)
    stack, instants = stack_values(problem, values), np.sort(np.asarray(times, np.int64))
    if not instants.size:
        raise ValuesError("there are no requests", remedy="give the time of at least one")
    starts, requests, windows = cut_windows(problem, instants)
    program = FluidProgram(problem, SetValues.of(stack, problem, fewer), requests, windows)
    return program.solve(starts)


def cut_windows(problem: Problem, times: Ints) -> tuple[Ints, Ints, Ints]:
    """The intervals between all edges that have requests: starts, requests, and for each limit the
    number of the window that each is in, (d, I); 0 for a limit on all requests.
    """
    edges = {one: list_edges_until(one, int(times[0]), int(times[-1])) for one in problem.calendars}
    cuts = np.unique(np.concatenate([[int(times[0])], *edges.values()]))
    places = np.searchsorted(cuts, times, side="right") - 1
    used, requests = np.unique(places, return_counts=True)
    starts, windows = cuts[used], np.zeros((len(problem.limits), used.size), np.int64)
    for j, limit in enumerate(problem.limits):
        if limit.calendar is not None:
            windows[j] = np.searchsorted(edges[limit.calendar], starts, side="right") - 1
    return starts, requests, windows


class FluidProgram:
    """The linear program: how many requests of each interval are asked of each panel.

    A column is a set; every interval may use it. The columns of an interval need not sum to its
    requests: the rest is refused.
    """

    def __init__(self, problem: Problem, sets: SetValues, requests: Ints, windows: Ints) -> None:
        self.problem, self.requests, self.sets = problem, requests, sets
        self.pricing = sets.pricing_problem()
        self.tolerance = RELATIVE_GAP * float(sets.worth.max(axis=0).sum())
        self.members, self.f = sets.columns([tuple(range(sets.most))])
        self.away = -problem.signs / problem.peaks  # turns limits into "at most", in units
        totals = np.array([limit.is_total for limit in problem.limits], np.bool_)
        bounds = np.array([limit.bound for limit in problem.limits], np.float64)
        self.averages = np.where(totals, 0.0, bounds)
        # One row for each window of a limit, and in which intervals it is.
        ones, intervals = np.ones(requests.size), np.arange(requests.size)
        self.windows = [csr_array((ones, (numbers, intervals))) for numbers in windows]
        counts = windows.max(axis=1) + 1
        self.ends = np.cumsum(counts)
        self.right = np.repeat(np.where(totals, bounds, 0.0) / problem.peaks, counts)

    def solve_columns(self) -> tuple[Floats, Floats]:
        """Return the requests (I, columns) and the price of each window of a limit."""
        shape = self.requests.size, self.f.size
        costs = sum_members(self.problem.rows, self.members) - self.averages[:, None]
        costs *= self.away[:, None]  # what each column adds to a row, at most 0 or the bound
        parts = [kron(window, cost[None]) for window, cost in zip(self.windows, costs, strict=True)]
        parts.append(kron(eye_array(shape[0]), np.ones((1, shape[1]))))
        matrix = vstack(parts, format="csr")
        slope, right = np.tile(-self.f, shape[0]), np.append(self.right, self.requests)
        found = linprog(slope, matrix, right, method="highs")  # type: ignore[call-overload]
        if found.x is None:  # nothing asked at all is feasible
            raise ValuesError(f"the solver failed: {found.message}")
        prices = np.maximum(-found.ineqlin.marginals, 0.0)
        return found.x.reshape(shape), prices[: self.right.size]

    def find_charges(self, prices: Floats) -> tuple[Floats, Floats]:
        """(I, K) what each expert is charged, and (I,) what a request is paid by averages."""
        charges, paid = (
            np.zeros((self.requests.size, self.problem.size)),
            np.zeros(self.requests.size),
        )
        parts = np.split(prices, self.ends)
        for j, window in enumerate(self.windows):
            price = self.away[j] * (window.T @ parts[j])
            charges += price[:, None] * self.problem.rows[j]
            paid += price * self.averages[j]
        return charges, paid

    def add_columns(self, prices: Floats) -> bool:
        """Add sets that are better than all there are at some of the prices; False if none is."""
        charges, before = np.unique(self.find_charges(prices)[0].round(12), axis=0), self.f.size
        for charge in charges:
            merits = self.f - sum_members(charge, self.members)
            used = self.members[merits > merits.max() - self.tolerance]
            members, f = self.pricing.find_sets(charge, used)
            gain = f - sum_members(charge, members) - merits.max()
            best = int(gain.argmax())
            if gain[best] > self.tolerance:
                self.members = np.concatenate([self.members, members[[best]]])
                self.f = np.append(self.f, f[best])
        return self.f.size > before

    def solve(self, starts: Ints) -> FluidOptimum:
        """The optimum, and by how much it could be beaten at most."""
        for _ in range(MAX_ITERATIONS):
            asked, prices = self.solve_columns()
            if not self.add_columns(prices):
                break
        charges, paid = self.find_charges(prices)
        unique, place = np.unique(charges, axis=0, return_inverse=True)
        ceilings = np.array([self.pricing.prove(charge).ceiling for charge in unique])
        best = np.maximum(ceilings[place.ravel()] + paid, 0.0)  # or it is refused
        rewards = asked @ self.f
        value = float(rewards.sum())
        ceiling = float(self.requests @ best + prices @ self.right)
        return FluidOptimum(
            value=value,
            gap=max(ceiling - value, 0.0),
            starts=starts,
            requests=self.requests,
            rewards=rewards,
            refused=self.requests - asked.sum(axis=1),
            spend=asked @ sum_members(self.problem.rows, self.members).T,
        )
