"""The paper's crowd: its counts, its checksums, and the similarity of the synthetic crowd."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from bylot.errors import DataError
from bylot.numerics.jit import Floats
from bylot_paper.crowd import Crowd, CrowdCounts, make_synthetic_crowd
from bylot_paper.crowd_sources import (
    TREC_CROWD_FILE,
    TREC_DIGEST,
    TREC_SHA256,
    TREC_TRUTH_FILE,
    check_counts,
    find_crowd,
    read_trec,
)

SHARED_TREC_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec"


@pytest.fixture(scope="module")
def trec_folder() -> Path:
    """The folder of the TREC files; skips the tests if there is none."""
    for folder in (Path(os.environ.get("BYLOT_DATA", SHARED_TREC_FOLDER)), SHARED_TREC_FOLDER):
        if (folder / TREC_CROWD_FILE).is_file():
            return folder
    pytest.skip(f"no TREC files: neither in $BYLOT_DATA nor in {SHARED_TREC_FOLDER}")


@pytest.fixture(scope="module")
def trec(trec_folder: Path) -> Crowd:
    return read_trec(trec_folder)


def test_the_joined_data_has_the_counts_of_the_paper(trec: Crowd) -> None:
    """Section 6.1."""
    assert trec.counts == CrowdCounts(workers=677, tasks=2275, annotations=12863, reliable=270)
    assert (trec.name, trec.synthetic) == ("trec", False)
    assert trec.unjudged == (88_385 - 12_863, 16_758, 85, 0)


def test_the_joined_data_has_the_digest_that_reports_expect(trec: Crowd) -> None:
    assert trec.digest == TREC_DIGEST


def test_tasks_are_sorted_as_numbers(trec: Crowd) -> None:
    assert trec.tasks[:3] == ("5", "6", "13")
    assert list(map(int, trec.tasks)) == sorted(map(int, trec.tasks))


def test_pools_are_as_the_paper_describes_them(trec: Crowd) -> None:
    for seed in range(5):
        for dimensions in (3, 5):
            pool = trec.pool(seed, dimensions=dimensions)
            assert pool.skills.shape == (dimensions, 50)
            assert len(set(pool.workers)) == 50
            assert pool.workload.max() == 1
            assert pool.workload.min() > 0
            assert pool.expert.sum() == 10
            assert ((pool.skills >= 0) & (pool.skills <= 1)).all()
            assert 0 <= pool.imputed < 50


def test_a_folder_with_other_files_of_these_names_is_refused(
    trec_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / TREC_CROWD_FILE).write_bytes((trec_folder / TREC_CROWD_FILE).read_bytes())
    changed = (trec_folder / TREC_TRUTH_FILE).read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / TREC_TRUTH_FILE).write_bytes(changed)
    with pytest.raises(DataError) as caught:
        find_crowd(str(tmp_path))
    message = str(caught.value)
    for word in (
        TREC_TRUTH_FILE,
        TREC_SHA256[TREC_TRUTH_FILE],
        hashlib.sha256(changed).hexdigest(),
        "download it again",
    ):
        assert word in message
    assert len(message.splitlines()) == 1


def test_a_count_that_differs_is_named(trec: Crowd) -> None:
    with pytest.raises(DataError, match="677 workers instead of 678; download"):
        check_counts(trec, trec.counts._replace(workers=678))
    assert check_counts(trec, trec.counts) is trec


def test_a_folder_is_found_by_its_path_and_by_the_environment_variable(
    trec_folder: Path, trec: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_crowd(str(trec_folder)) == trec
    monkeypatch.setenv("BYLOT_DATA", str(trec_folder))
    assert find_crowd() == trec
    assert find_crowd("synthetic").synthetic  # an argument overrides the environment


def test_the_environment_variable_can_select_the_synthetic_crowd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BYLOT_DATA", "synthetic")
    assert find_crowd() == make_synthetic_crowd()


@pytest.mark.parametrize(
    ("where", "words"),
    [("nowhere", "is not a folder; give a folder with"), ("", "or 'synthetic'")],
)
def test_a_missing_folder_is_named(where: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        find_crowd(where)


def test_a_missing_file_of_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{TREC_CROWD_FILE}: no such file") as caught:
        find_crowd(str(tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def describe_marginals(crowd: Crowd) -> dict[str, Floats]:
    """The marginals of a crowd that affect the experiments."""
    reliable = crowd.reliable()
    load, accuracy = crowd.workload[reliable], crowd.accuracy()[reliable]
    skills = np.array([crowd.pool(seed).skills for seed in range(20)])
    return {
        "log load": np.log(np.quantile(load, [0, 0.25, 0.5, 0.75, 0.9, 0.95])),
        "log largest load": np.log([load.max()]),
        "accuracy": np.quantile(accuracy, [0.1, 0.25, 0.5, 0.75]),
        "mean accuracy": np.array([accuracy.mean()]),
        "never wrong": np.array([(accuracy == 1).mean()]),
        "right": np.array([crowd.correct.mean()]),
        "skills of 1": np.array([(skills == 1).mean()]),
        "per task": np.quantile(np.bincount(crowd.task), [0, 0.1, 0.5, 0.9]),
    }


# Loads are drawn by quantile: 5%, and the largest, one draw from a range that spans 406 to 968 at
# most, by a factor of 2. 270 accuracies of deviation 0.17 have a mean of standard error 0.010 and
# quantiles of about twice that: 3 of them. 7% of 270 have one of 0.016. One worker in 13 made
# the share of right annotations in TREC, so 0.05.
TOLERANCE = {
    "log load": 0.05,
    "log largest load": 0.70,
    "accuracy": 0.06,
    "mean accuracy": 0.03,
    "never wrong": 0.048,
    "right": 0.05,
    "skills of 1": 0.06,
    "per task": 1.0,
}


def list_different_marginals(one: Crowd, other: Crowd) -> list[str]:
    """The marginals in which two crowds differ by more than the tolerance."""
    a, b = describe_marginals(one), describe_marginals(other)
    return [name for name, limit in TOLERANCE.items() if np.abs(a[name] - b[name]).max() > limit]


@pytest.mark.parametrize("seed", range(4))
def test_the_synthetic_crowd_has_the_shape_of_trec(trec: Crowd, seed: int) -> None:
    assert list_different_marginals(make_synthetic_crowd(seed), trec) == []


def test_the_test_above_would_notice_another_shape(
    trec: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bylot_paper.crowd.LOAD_QUANTILES", tuple(np.linspace(5, 968, 9)))
    assert {"log load", "mean accuracy", "skills of 1"} <= set(
        list_different_marginals(make_synthetic_crowd(), trec)
    )
