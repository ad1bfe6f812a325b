"""Results of solvers on disk: found again bit for bit, and never wrong."""

import os
from pathlib import Path

import numpy as np
import pytest

from bylot.limits.rows import find_slater_point
from bylot.numerics import result_cache
from bylot.numerics.jit import Floats
from bylot.numerics.result_cache import recall_result
from sample_problem import make_five_expert_problem

THIRDS = np.array([1 / 3, 2 / 3, np.inf])


class Solver:
    """Counts how often it is asked."""

    def __init__(self, answer: Floats | None = THIRDS) -> None:
        self.answer, self.asked = answer, 0

    def __call__(self) -> Floats | None:
        self.asked += 1
        return self.answer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder of results."""
    monkeypatch.setattr(result_cache, "RESULTS_FOLDER", tmp_path / "results")
    return tmp_path / "results"


def test_a_result_is_solved_once_and_read_bit_for_bit(folder: Path) -> None:
    solver = Solver()
    for _ in range(3):
        found = recall_result("test", (THIRDS, 2), solver)
        assert found is not None
        assert found.tobytes() == THIRDS.tobytes()
        assert found.flags.writeable
    assert solver.asked == 1
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("other", (THIRDS, 2)),
        ("test", (THIRDS, 3)),
        ("test", (THIRDS, 2.0)),
        ("test", (np.nextafter(THIRDS, 0), 2)),
        ("test", (THIRDS[:, None], 2)),
    ],
)
def test_another_program_is_another_result(
    folder: Path, kind: str, given: tuple[Floats, float]
) -> None:
    recall_result("test", (THIRDS, 2), Solver())
    solver = Solver()
    recall_result(kind, given, solver)
    assert solver.asked == 1
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"x", b"0" * 40])
def test_a_damaged_result_is_solved_again(folder: Path, damage: bytes) -> None:
    recall_result("test", (THIRDS,), Solver())
    (path,) = folder.iterdir()
    path.write_bytes(damage)
    for _ in range(2):
        found = recall_result("test", (THIRDS,), solver := Solver())
        assert found is not None
        assert found.tolist() == THIRDS.tolist()
    assert solver.asked == 0


def test_neither_a_failure_nor_a_large_result_is_kept(folder: Path) -> None:
    large = np.zeros(result_cache.MAX_RESULT_NUMBERS + 1)
    for answer in (None, large):
        solver = Solver(answer)
        for _ in range(2):
            assert recall_result("test", (THIRDS,), solver) is answer
        assert solver.asked == 2
    assert not folder.exists()


def test_results_need_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    for folder in (None, tmp_path / "a file"):
        monkeypatch.setattr(result_cache, "RESULTS_FOLDER", folder)
        assert recall_result("test", (THIRDS,), Solver()) is THIRDS


def test_the_older_half_of_too_many_results_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_cache, "MAX_RESULTS", 5)
    for number in range(6):
        known = set(folder.iterdir()) if folder.exists() else set()
        recall_result("test", (number,), Solver())
        for path in set(folder.iterdir()) - known:
            os.utime(path, (number, number))
    assert len(list(folder.iterdir())) == 3
    recall_result("test", (5,), solver := Solver())
    assert solver.asked == 0


def test_a_slater_point_from_the_disk_is_the_solved_one(folder: Path) -> None:
    problem = make_five_expert_problem()
    solved, read = (find_slater_point(problem, fewest=1) for _ in range(2))
    assert list(folder.iterdir())
    assert solved.margin == read.margin
    assert solved.quota.tobytes() == read.quota.tobytes()
