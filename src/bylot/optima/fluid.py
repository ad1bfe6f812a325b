"""The fluid optimum: what panels could earn under limits of the calendar, with all traffic known.

Time is cut at every edge of a window. In each interval the requests are divided among panels, also
in fractions; a request may be refused. It is a linear program over panels and intervals, solved by
column generation as the best mixture is, and the prices of its solution prove how good it is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import coo_array

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.optima.objective import RELATIVE_GAP, ValueStack, stack_values
from bylot.optima.set_search import SetValues
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
        self.problem, self.requests, self.windows = problem, requests, windows
        self.pricing, self.sets = sets.pricing_problem(), sets
        self.tolerance = RELATIVE_GAP * float(sets.worth.max(axis=0).sum())
        self.members, self.f = sets.columns([tuple(range(sets.most))])
        # One row for each window of a limit: (cost - bound of an average) in units of its peak.
        self.counts = [int(one.max()) + 1 for one in windows]
        self.first_rows = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        self.is_total = np.array([limit.is_total for limit in problem.limits], np.bool_)

    def compute_row_costs(self) -> Floats:
        """(d, columns) what each column adds to the row of a limit, at most 0 or the bound."""
        padded = np.hstack([self.problem.rows, np.zeros((len(self.problem.rows), 1))])
        costs = padded[:, self.members].sum(axis=2)
        bounds = np.where(self.is_total, 0.0, [one.bound for one in self.problem.limits])
        return np.asarray(
            -self.problem.signs[:, None] * (costs - bounds[:, None]) / self.problem.peaks[:, None]
        )

    def compute_right_side(self) -> Floats:
        """What each row may be at most."""
        right = np.zeros(self.first_rows[-1])
        for j, limit in enumerate(self.problem.limits):
            if limit.is_total:
                rows = slice(self.first_rows[j], self.first_rows[j + 1])
                right[rows] = limit.bound / self.problem.peaks[j]
        return right

    def solve_columns(self) -> tuple[Floats, Floats, Floats]:
        """(I, columns) requests, (d, I) the prices of the limits in each interval, (I,) the prices
        of a request.
        """
        intervals, columns, limits = self.requests.size, self.f.size, len(self.problem.limits)
        costs = self.compute_row_costs()
        variable = np.arange(intervals * columns).reshape(intervals, columns)
        rows, places, numbers = [], [], []
        for j in range(limits):
            rows.append(np.repeat(self.first_rows[j] + self.windows[j], columns))
            places.append(variable.ravel())
            numbers.append(np.tile(costs[j], intervals))
        rows.append(np.repeat(self.first_rows[-1] + np.arange(intervals), columns))
        places.append(variable.ravel())
        numbers.append(np.ones(variable.size))
        shape = int(self.first_rows[-1]) + intervals, variable.size
        matrix = coo_array(
            (np.concatenate(numbers), (np.concatenate(rows), np.concatenate(places))), shape
        ).tocsr()
        right = np.concatenate([self.compute_right_side(), self.requests.astype(np.float64)])
        slope = np.tile(-self.f, intervals)
        found = linprog(slope, matrix, right, method="highs")  # type: ignore[call-overload]
        if found.x is None:  # nothing asked at all is feasible
            raise ValuesError(f"the solver failed: {found.message}")
        duals = np.maximum(-found.ineqlin.marginals, 0.0)
        prices = np.array(
            [duals[self.first_rows[j] + self.windows[j]] for j in range(limits)]
        ).reshape(limits, intervals)
        return found.x.reshape(intervals, columns), prices, duals[self.first_rows[-1] :]

    def find_charges(self, prices: Floats) -> tuple[Floats, Floats]:
        """(I, K) what each expert is charged, and (I,) what a request is paid by averages."""
        scaled = -self.problem.signs[:, None] * prices / self.problem.peaks[:, None]
        bounds = np.where(self.is_total, 0.0, [one.bound for one in self.problem.limits])
        return scaled.T @ self.problem.rows, scaled.T @ bounds

    def add_columns(self, prices: Floats) -> bool:
        """Add sets that are better than all there are at some of the prices; False if none is."""
        charges, before = np.unique(self.find_charges(prices)[0].round(12), axis=0), self.f.size
        for charge in charges:
            padded = np.append(charge, 0.0)
            merits = self.f - padded[self.members].sum(axis=1)
            used = self.members[merits > merits.max() - self.tolerance]
            members, f = self.pricing.find_sets(charge, used)
            gain = f - padded[members].sum(axis=1) - merits.max()
            best = int(gain.argmax())
            if gain[best] > self.tolerance:
                self.members = np.concatenate([self.members, members[[best]]])
                self.f = np.append(self.f, f[best])
        return self.f.size > before

    def solve(self, starts: Ints) -> FluidOptimum:
        """The optimum, and by how much it could be beaten at most."""
        for _ in range(MAX_ITERATIONS):
            asked, prices, _ = self.solve_columns()
            if not self.add_columns(prices):
                break
        charges, paid = self.find_charges(prices)
        unique, place = np.unique(charges, axis=0, return_inverse=True)
        ceilings = np.array([self.pricing.prove(charge).ceiling for charge in unique])
        best = np.maximum(ceilings[place.ravel()] + paid, 0.0)  # or it is refused
        duals = np.zeros(self.first_rows[-1])
        for j in range(len(self.problem.limits)):
            duals[self.first_rows[j] + self.windows[j]] = prices[j]
        rewards = asked @ self.f
        value = float(rewards.sum())
        ceiling = float(self.requests @ best + duals @ self.compute_right_side())
        padded = np.hstack([self.problem.rows, np.zeros((len(self.problem.rows), 1))])
        return FluidOptimum(
            value=value,
            gap=max(ceiling - value, 0.0),
            starts=starts,
            requests=self.requests,
            rewards=rewards,
            refused=self.requests - asked.sum(axis=1),
            spend=asked @ padded[:, self.members].sum(axis=2).T,
        )
