"""400 simulated days under budgets per day and month and a weekly minimum, in five traffic shapes.

No window may exceed its budget; a budget that binds is to be used, and the reward is compared with
the fluid optimum, which knows the traffic in advance. The days include both changes of daylight
saving and 29 February 2028.
"""

import itertools
from typing import Literal, NamedTuple

import numpy as np
import pytest

import bylot
from bylot.environments import Rounds, Traffic
from bylot.numerics.jit import Floats, Ints
from bylot.optima import FluidOptimum, ValueStack, fluid_optimum
from bylot.problem.calendar import Calendar, WindowName, list_edges

ZONE, DAY_US = "Europe/Berlin", 86_400_000_000
SKILLS = np.array([0.30, 0.34, 0.42, 0.38, 0.50, 0.47, 0.58, 0.66, 0.62, 0.75])
COSTS = np.array([0.05, 0.09, 0.162, 0.292, 0.526, 0.948, 1.709, 3.081, 5.55, 10.0])
PER_DAY, BUDGET, WARM_UP_DAYS = 1_000, 4_000.0, 14
Shape = Literal["flat", "daily", "weekend", "bursts", "dead-days"]
SHAPES: tuple[Shape, ...] = ("flat", "daily", "weekend", "bursts", "dead-days")


class Passing:
    """Every expert passes a task or not, by itself."""

    contexts, shape, block = 1, (1, SKILLS.size), 4_096

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        parts = []
        for number in range(start // self.block, (stop - 1) // self.block + 1):
            first = number * self.block
            drawn = np.random.default_rng([seed, number]).random((self.block, 1, SKILLS.size))
            parts.append((drawn < SKILLS)[max(0, start - first) : stop - first])
        return Rounds(np.concatenate(parts).astype(float), np.zeros(stop - start, np.int64))


class Campaign(NamedTuple):
    """What a play did in the intervals of the fluid optimum, and in its windows."""

    best: FluidOptimum
    earned: Floats  # (I,) expected rewards
    spent: Floats  # (I,)
    over: int  # windows that cost more than their budget
    below: int  # weeks in which the partners were asked too rarely
    refused: int


def list_passing_values() -> ValueStack:
    """All outcomes of a round, by their probabilities."""
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=SKILLS.size)))
    weights = np.where(outcomes > 0, SKILLS, 1.0 - SKILLS).prod(axis=1)
    return ValueStack(outcomes[:, None, :], weights=weights)


def expect_rewards(draws: Ints, refused: Floats) -> Floats:
    """The probability that some member of each panel passes; 0 for a request that was refused."""
    missed = np.ones(len(draws))
    for j in range(draws.shape[1]):
        again = (draws[:, :j] == draws[:, j : j + 1]).any(axis=1)
        missed *= np.where(again, 1.0, 1.0 - SKILLS[draws[:, j]])
    return np.where(refused > 0, 0.0, 1.0 - missed)


def make_problem(days_per_month: float) -> bylot.Problem:
    limits = [
        bylot.at_most("usd", BUDGET, per="day", zone=ZONE),
        bylot.at_most("usd", days_per_month * BUDGET, per="month", zone=ZONE),
        bylot.at_least(bylot.share("partners", ["e3", "e5"]), 0.1, per="week", zone=ZONE),
    ]
    experts = [f"e{i}" for i in range(SKILLS.size)]
    return bylot.Problem(experts, {"usd": COSTS}, limits, draws=3)


def run_campaign(shape: Shape, days: int, days_per_month: float, seed: int = 3) -> Campaign:
    traffic = Traffic(shape, per_day=PER_DAY, start="2027-12-20", zone=ZONE)
    times, problem = traffic.arrivals_until(days, seed), make_problem(days_per_month)
    trace = bylot.simulate(
        problem, Passing(), rounds=len(times), seed=seed, times=times, keep_distributions=False
    )
    assert trace.policy.name == "noisy-or", "the default for budgets of the calendar"
    best = fluid_optimum(problem, list_passing_values(), times)
    assert best.gap <= 1e-9 * best.value
    place = np.searchsorted(best.starts, times, side="right") - 1
    refused = trace.refused.astype(float)

    def sum_windows(per: WindowName, amounts: Floats) -> Floats:
        edges = list_edges(Calendar(per, ZONE), int(times[0]), days + 2)
        return np.asarray(np.bincount(np.searchsorted(edges, times, side="right"), amounts), float)

    def sum_intervals(amounts: Floats) -> Floats:
        return np.asarray(np.bincount(place, amounts, best.starts.size), float)

    over = int((sum_windows("day", trace.spend[:, 0]) > BUDGET * (1 + 1e-12)).sum())
    month = days_per_month * BUDGET * (1 + 1e-12)
    over += int((sum_windows("month", trace.spend[:, 1]) > month).sum())
    short = sum_windows("week", trace.spend[:, 2]) < 0.1 * sum_windows("week", 1 - refused) - 1e-9
    return Campaign(
        best=best,
        earned=sum_intervals(expect_rewards(trace.draws, refused)),
        spent=sum_intervals(trace.spend[:, 0]),
        over=over,
        below=int(short.sum()),
        refused=int(refused.sum()),
    )


def judge_campaign(found: Campaign) -> tuple[float, float]:
    """The reward relative to the optimum, and the used part of budgets that bind, after a while."""
    best = found.best
    later = best.starts >= best.starts[0] + WARM_UP_DAYS * DAY_US
    binding = later & (best.spend[:, 0] > 0.999 * BUDGET)
    used = found.spent[binding].sum() / best.spend[binding, 0].sum() if binding.any() else 1.0
    return float(found.earned[later].sum() / best.rewards[later].sum()), float(used)


@pytest.mark.parametrize("shape", ["weekend", "bursts"])
def test_two_months_of_budgets(shape: Shape) -> None:
    found = run_campaign(shape, days=60, days_per_month=40)
    reward, used = judge_campaign(found)
    assert found.over == found.below == 0
    assert reward > 0.96
    assert used > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_400_days_with_a_binding_budget_per_day(shape: Shape) -> None:
    found = run_campaign(shape, days=400, days_per_month=40)
    reward, used = judge_campaign(found)
    print(f"{shape}: reward {reward:.4f}, used {used:.4f}, {found.refused} refused")
    assert found.over == found.below == 0
    assert reward >= 0.98
    assert used >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_400_days_with_a_binding_budget_per_month(shape: Shape) -> None:
    found = run_campaign(shape, days=400, days_per_month=24)
    reward, _ = judge_campaign(found)
    months = np.searchsorted(
        list_edges(Calendar("month", ZONE), int(found.best.starts[0]), 20),
        found.best.starts,
        "right",
    )
    best, spent = (np.bincount(months, one)[2:-1] for one in (found.best.spend[:, 0], found.spent))
    binding = best > 0.999 * 24 * BUDGET
    used = spent[binding].sum() / best[binding].sum()
    print(f"{shape}: reward {reward:.4f}, used {used:.4f} of {binding.sum()} months")
    assert found.over == found.below == 0
    assert reward >= 0.98
    assert used >= 0.97
