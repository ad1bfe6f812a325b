"""The benchmark of the projection runs and prints the documented table."""

import json

import numpy as np
import pytest

from bylot.errors import BylotError
from bylot.numerics.simplex_projection import project_onto_halfspace
from bylot_bench import qp
from bylot_bench.qp import record_steps


def test_a_small_run_has_the_documented_keys_and_a_table() -> None:
    result = qp.run(cases=20, sizes=(20,), seconds=0.01)
    row = json.loads(json.dumps(result))["qp"][0]
    assert row["K"] == 20
    assert row["ratio_to_best"] == min(row["peers_us"].values()) / row["ours_us"]
    assert set(row["peers_us"]) | set(row["notes"]) == set(qp.QP_SOLVERS)
    assert result["fuzz"]["failures"] == 0
    assert result["fuzz"]["worst_kkt"] <= 1e-12
    assert "20 hard cases, 0 failures" in qp.render(result)


def test_recorded_steps_are_reproducible_and_their_constraint_binds() -> None:
    steps = record_steps(30, 5, skip=3)
    for z, a, b in zip(*steps[1:], strict=True):
        assert project_onto_halfspace(z, steps.floor, a, float(b)).multiplier > 0
    assert np.array_equal(steps.z, record_steps(30, 5, skip=3).z)


def test_a_solver_with_wrong_solutions_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    uniform = {"daqp": lambda K, floor: lambda z, a, b: np.full(K, 1 / K)}
    monkeypatch.setattr(qp, "QP_SOLVERS", uniform)
    times, notes = qp.time_solvers(20, record_steps(20, 3, skip=0), 0.01)
    assert times == {}
    assert "off by" in notes["daqp"]


def test_without_any_solver_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(qp, "list_missing_solvers", lambda: list(qp.QP_SOLVERS))
    with pytest.raises(BylotError, match=r"pip install '\.\[bench\]'"):
        qp.run(cases=1, sizes=())
