"""A new kind of linear limit is one class: the problem, policies and saved files need no change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot import Problem, Router, at_most, problem_files
from bylot.errors import InfeasibleLimits, ProblemError
from bylot.numerics.jit import Floats
from bylot.problem import DerivedCost, Limit


@dataclass(frozen=True)
class WeightedGroup(DerivedCost, key="weighted"):
    """Members of a group, each with a weight of its own."""

    weights: tuple[tuple[str, float], ...]

    def row(self, experts: Sequence[str]) -> Floats:
        weights = dict(self.weights)
        return np.array([weights.get(name, 0.0) for name in experts])

    def to_data(self) -> dict[str, Any]:
        return {"weighted": self.group, "weights": dict(self.weights)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["weighted"], tuple(data["weights"].items()))


LIMIT = at_most(WeightedGroup("effort", (("ann", 2.0), ("eve", 0.5))), 1.0)


def make_problem(limit: Limit = LIMIT) -> Problem:
    return Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, [limit], draws=1)


def test_the_row_of_a_limit_comes_from_its_cost() -> None:
    assert_array_equal(LIMIT.row(make_problem()), [2.0, 0.0, 0.5])
    assert_array_equal(make_problem().rows, [[2.0, 0.0, 0.5]])
    assert_array_equal(at_most("usd", 3).row(make_problem()), [1.0, 2.0, 4.0])


def test_a_limit_of_a_new_kind_is_checked_for_feasibility() -> None:
    heavy = at_most(WeightedGroup("effort", (("ann", 2.0), ("bob", 2.0), ("eve", 2.0))), 1.0)
    with pytest.raises(InfeasibleLimits, match=r"use at_most\('effort', 2.0\)"):
        make_problem(heavy)


def test_a_limit_of_a_new_kind_survives_conversion_to_data() -> None:
    assert Limit.from_data(LIMIT.to_data()) == LIMIT
    assert at_most("usd", 3).to_data() == {"cost": "usd", "at_most": 3.0}
    assert Limit.from_data({"cost": "usd", "at_least": 3.0}).sign == +1
    per_draw = at_most("usd", 2, per="draw")
    assert Limit.from_data(per_draw.to_data()) == per_draw


def test_a_kind_of_limit_that_a_problem_file_cannot_hold_is_refused() -> None:
    with pytest.raises(ProblemError, match="cannot hold the limit on 'effort', a weighted"):
        problem_files.write(make_problem())


def test_a_router_under_a_new_kind_of_limit_can_be_saved_and_loaded(tmp_path: Path) -> None:
    router = Router(make_problem(), "random", seed=1)
    decisions = [router.decide() for _ in range(3)]
    router.save(tmp_path / "router.bylot")
    loaded = Router.load(tmp_path / "router.bylot")
    assert loaded.problem == router.problem
    assert loaded.problem.limits == (LIMIT,)
    assert loaded.decide().subset == router.decide().subset
    assert len(decisions) == 3
