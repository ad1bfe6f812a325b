"""What calls really cost in a simulation: other means than declared, noise, heavy tails."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bylot.environments.base import FIRST_ENVIRONMENT_STREAM, check_number
from bylot.errors import ValuesError
from bylot.limits.request import Ticket, settle_everybody
from bylot.limits.rows import compute_row_units
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import RngKey, draw_uniforms
from bylot.numerics.sampling import is_first_draw, select_first
from bylot.problem import Problem, validation
from bylot.problem.limit_input import float_from_real

CALL_COST_STREAM = FIRST_ENVIRONMENT_STREAM + 1_000  # of the first cost; the others follow
SpendReport = Literal["members", "panel", "nothing"]


@dataclass(frozen=True)
class CallCosts:
    """What each call of an expert costs in a simulation, and what is reported to the router.

    Calls are independent; the mean cost of an expert is the declared one, or that of `means`. No
    call costs more than `max_costs` of the problem, which lowers the mean where it would.

    Parameters
    ----------
    means : mapping of str to array_like
        For some costs, the mean cost of a call of each expert; by default the declared costs.
    noise : float
        The standard deviation of the cost of a call, relative to its mean (lognormal).
    tail : float, optional
        The exponent of a Pareto distribution, above 1, instead of lognormal noise: a smaller one
        has heavier tails.
    report : str
        What is reported with each reward: 'members', the cost of each member; 'panel', the sum;
        'nothing'.

    Raises
    ------
    ValuesError
        If a part is invalid.
    """

    means: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    noise: float = 0.0
    tail: float | None = None
    report: SpendReport = "members"

    def __post_init__(self) -> None:
        noise = check_number(
            "noise",
            self.noise,
            float_from_real,
            lambda x: 0.0 <= x < math.inf,
            "a number of at least 0",
        )
        if self.tail is not None:
            check_number(
                "tail",
                self.tail,
                float_from_real,
                lambda x: 1.0 < x < math.inf,
                "a number above 1",
            )
            if noise > 0.0:
                raise ValuesError("noise and tail exclude each other", remedy="give one of them")
        if self.report not in get_args(SpendReport):
            raise ValuesError(
                "report",
                got=self.report,
                expected=" or ".join(map(repr, get_args(SpendReport))),
            )

    def bind(self, problem: Problem) -> "CallCostTable":
        """The costs of calls under the limits of a problem."""
        rows, most = np.array(problem.rows), np.full(problem.rows.shape, np.inf)
        for name in self.means:
            if name not in problem.costs:
                raise ValuesError(
                    f"means has the unknown cost {name!r}",
                    remedy=validation.suggest_known_name(name, list(problem.costs), "costs"),
                )
        means = validation.check_costs(problem.experts, self.means)
        stream, names = np.full(len(problem.limits), -1, np.int64), list(problem.costs)
        for j, limit in enumerate(problem.limits):
            if not limit.is_derived:
                rows[j] = means.get(limit.name, rows[j])
                most[j] = problem.max_costs.get(limit.name, most[j])
                stream[j] = CALL_COST_STREAM + names.index(limit.name)
                if self.noise == 0.0 and self.tail is None:  # else each call is capped
                    rows[j] = np.minimum(rows[j], most[j])
        reported = get_args(SpendReport).index(self.report)
        tail = 0.0 if self.tail is None else float(self.tail)
        unit = -problem.signs * compute_row_units(problem)
        return CallCostTable(rows, most, stream, float(self.noise), tail, reported, unit)


class CallCostTable(NamedTuple):
    """`CallCosts` under the limits of a problem."""

    means: Floats  # (d, K)
    most: Floats  # (d, K) of a call
    stream: Ints  # (d,) of random numbers, the same for all limits on a cost; -1: an exact cost
    noise: float
    tail: float  # 0: lognormal
    reported: int  # 0: of each member; 1: the sum; 2: nothing
    unit: Floats  # (d,) of the rows that a guard has, negative for a minimum


def make_declared_costs(problem: Problem) -> CallCostTable:
    """Calls cost what is declared, and nothing is reported."""
    table = CallCosts(report="nothing").bind(problem)
    return table._replace(stream=np.full(len(problem.limits), -1, np.int64))


@jit
def draw_call_costs(table: CallCostTable, draws: Ints, rng: RngKey) -> Floats:
    """(d, M) the cost of the call of each draw under each limit; 0 if its expert came before."""
    d, M = table.means.shape[0], draws.size
    costs = np.zeros((d, M))
    for j in range(d):
        for place in range(M):
            if is_first_draw(draws, place):
                costs[j, place] = table.means[j, draws[place]]
        if table.stream[j] >= 0 and (table.noise > 0.0 or table.tail > 0.0):
            u = draw_uniforms(rng, table.stream[j], 2 * M)
            for place in range(M):
                cost = costs[j, place] * draw_noise_factor(table, u[2 * place], u[2 * place + 1])
                costs[j, place] = min(cost, table.most[j, draws[place]])
    return costs


@jit
def draw_noise_factor(table: CallCostTable, u: float, v: float) -> float:
    """A random factor of mean 1: lognormal, or Pareto if there is a tail."""
    if table.tail > 0.0:
        return float((table.tail - 1.0) / table.tail * (1.0 - u) ** (-1.0 / table.tail))
    s = math.sqrt(math.log1p(table.noise * table.noise))
    normal = math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v)
    return math.exp(s * normal - 0.5 * s * s)


@jit
def settle_simulated_calls(
    limits: Any, ticket: Ticket, rows: Floats, calls: CallCostTable, rng: RngKey
) -> None:
    """Report what the calls of a decision cost: of each member, or their sum."""
    members = select_first(ticket.draws, ticket.draws)
    costs = draw_call_costs(calls, ticket.draws, rng)
    more, spend = np.full(rows.shape[0], np.nan), np.full((rows.shape[0], members.size), np.nan)
    for j in range(rows.shape[0]):
        if calls.stream[j] >= 0:
            own, total, stated = select_first(costs[j], ticket.draws), 0.0, 0.0
            for place in range(members.size):
                total += own[place]
                stated += rows[j, members[place]]
                if calls.reported == 0:
                    spend[j, place] = own[place] / calls.unit[j]
            more[j] = (total - stated) / calls.unit[j]
    settle_everybody(limits, ticket.context, ticket.t, members, more, spend)


@jit
def has_own_costs(table: CallCostTable) -> bool:
    """Can calls cost anything else than declared?"""
    some = False
    for j in range(table.stream.size):
        some |= table.stream[j] >= 0
    return some


def report_calls(
    table: CallCostTable, problem: Problem, draws: Ints, costs: Floats
) -> dict[str, Any] | None:
    """The spend to report with the reward of these draws, by name of the cost; None: nothing.

    costs: (d, M) as `draw_call_costs` gave them
    """
    if table.reported == 2:
        return None
    spend: dict[str, Any] = {}
    for j, limit in enumerate(problem.limits):
        if table.stream[j] >= 0:
            members: dict[str, float] = {}
            for i, cost in zip(draws.tolist(), costs[j].tolist(), strict=True):
                members.setdefault(problem.experts[i], cost)
            total = 0.0
            for cost in members.values():  # one after the other, as compiled code adds them
                total += cost
            spend[limit.name] = members if table.reported == 0 else total
    return spend
