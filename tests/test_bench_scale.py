"""The benchmark of growing pools runs and prints the documented table."""

import json
import math

import pytest

from bylot.policies import POLICIES
from bylot_bench import scale


def test_a_small_run_has_a_row_for_each_policy_and_size_and_a_table() -> None:
    result = scale.run(sizes=((10, 2), (40, 2), (40, 3)), seconds=0.01, turns=1)
    rows = json.loads(json.dumps(result))["scale"]
    names = [name for name in scale.SCALED_POLICIES if name in POLICIES]
    assert {"omd", "distinct"} <= set(names)
    sizes = [(10, 2), (40, 2), (40, 3)]
    assert [(row["policy"], row["K"], row["M"]) for row in rows] == [
        (name, *size) for size in sizes for name in names
    ]
    for row in rows:
        assert row["us_per_round"] == 1e6 / row["rounds_per_cpu_s"]
        assert row["bind_s"] >= 0
        assert ("growth" in row) == (row["K"] == 40 and row["M"] == 2)
    assert len(scale.render(result).splitlines()) == len(rows) + 2


def test_growth_is_the_exponent_of_k_between_sizes_of_one_policy_and_panel_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prepare_quadratic_policy(policy: object, K: int, M: int) -> tuple[float, scale.PlayTurn]:
        return 0.0, lambda seconds: 1e6 / K**2

    monkeypatch.setattr(scale, "prepare_policy", prepare_quadratic_policy)
    rows = scale.run(sizes=((10, 5), (30, 5), (500, 5), (500, 9)))["scale"]
    growth = [row.get("growth", math.nan) for row in rows if row["policy"] == "omd"]
    assert growth == pytest.approx([math.nan, 2.0, 2.0, math.nan], nan_ok=True)


def test_an_unknown_policy_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SCALED_POLICIES", ("omd", "unknown"))
    monkeypatch.setattr(scale, "prepare_policy", lambda policy, K, M: (0.0, lambda seconds: 1.0))
    assert [row["policy"] for row in scale.run(sizes=((10, 2),))["scale"]] == ["omd"]


@pytest.mark.parametrize(("K", "M"), scale.POOL_SIZES)
def test_the_limits_of_the_benchmark_pool_are_feasible(K: int, M: int) -> None:
    problem = scale.make_scale_problem(K, M)
    assert problem.full_conflict is None
    POLICIES["omd"].bind(problem)  # would warn, and warnings are errors here
