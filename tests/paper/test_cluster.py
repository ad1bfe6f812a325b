"""Jobs on real Ray clusters: the same results as on threads, even if a machine dies half-way."""

import functools
import importlib.util
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bylot.errors import BylotError, install_command
from bylot.parallel import JobFailed, ThreadEngine
from bylot_paper.cluster import (
    JOBS_PER_CORE,
    ClusterRun,
    RayCluster,
    import_quiet_ray,
    make_remote_task,
)
from cluster_jobs import fail_cell_7, get_common_version, get_process_id, multiply_matrices

RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason=f"Ray is not installed: {install_command('ray')}",
)
SIZE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
SHARED = np.random.default_rng(5).random((400, 400))


def results_by_job(done: Sequence[Any]) -> dict[int, tuple[float, bytes]]:
    """Results by job, to the last bit."""
    return {one.job: (one.result[1], one.result[2].tobytes()) for one in done}


def is_alive(pid: int) -> bool:
    """Whether a process with this id is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def have_ended(pids: set[int]) -> bool:
    """Whether all these processes end within half a minute."""
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


@pytest.fixture(scope="module")
def tests_on_python_path() -> Iterator[None]:
    """Workers import their jobs from this folder."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="module")
def cluster(tests_on_python_path: None) -> Iterator[Any]:
    """A running cluster of one machine with one core (as far as Ray knows), which others can join.

    All tests share it: connecting to a cluster must not end it.
    """
    health = {"period_ms": 500, "failure_threshold": 3, "initial_delay_ms": 0}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in health.items():  # a death is seen in seconds
            patch.setenv(f"RAY_health_check_{name}", str(value))
        import_quiet_ray()
        cluster_utils: Any = importlib.import_module("ray.cluster_utils")
        head = {"include_dashboard": False, **SIZE}
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        pids = {one.process.pid for one in list_processes(cluster.head_node)}
        yield cluster
        assert all(map(is_alive, pids))
        cluster.shutdown()
        assert have_ended(pids)


def list_processes(node: Any) -> list[Any]:
    """All processes that Ray started for a machine."""
    return [one for group in node.all_processes.values() for one in group]


def kill_when_busy(cluster: Any, node: Any, marks: Path) -> None:
    """Kill a machine, as power loss would, while it runs its second job."""
    raylet = str(node.all_processes["raylet"][0].process.pid)
    while sum(mark.name.split()[1] == raylet for mark in marks.iterdir()) < 2:
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)


@RAY
def test_a_machine_that_dies_half_way_changes_no_result(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    jobs = range(20)
    second = cluster.add_node(**SIZE)
    killing = (cluster, second, there)
    killer = threading.Thread(target=kill_when_busy, args=killing, daemon=True)
    killer.start()
    engine = RayCluster(cluster.address, workers=1, check=get_common_version)
    done = list(engine.run(jobs, functools.partial(multiply_matrices, SHARED, there)))
    killer.join(timeout=60)
    by_threads = list(ThreadEngine(2).run(jobs, functools.partial(multiply_matrices, SHARED, here)))
    assert results_by_job(done) == results_by_job(by_threads)
    assert len(done) == len(jobs)
    assert all(one.core_seconds < 0.2 for one in done)  # asleep for longer than that
    started = [mark.name.split()[:2] for mark in there.iterdir()]
    assert len({machine for _, machine in started}) == 2  # both machines ran jobs
    assert len(started) > len(jobs)  # and unfinished jobs of the dead machine were run again
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [f"... cores of the cluster: {n}" for n in (2, 1)]


@RAY
@pytest.mark.usefixtures("tests_on_python_path")
def test_a_started_cluster_gets_few_jobs_at_a_time_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted_counts, submit = [], ClusterRun.submit

    def submit_and_count(run_of_jobs: ClusterRun) -> None:
        submit(run_of_jobs)
        submitted_counts.append(len(run_of_jobs.submitted))

    monkeypatch.setattr(ClusterRun, "submit", submit_and_count)
    run = RayCluster(None, workers=2, check=get_common_version).run(
        range(100), functools.partial(multiply_matrices, SHARED, tmp_path)
    )
    assert {next(run).job, next(run).job} <= set(range(100))
    raylets = {int(mark.name.split()[1]) for mark in tmp_path.iterdir()}
    assert len(raylets) == 1
    assert is_alive(*raylets)
    run.close()  # type: ignore[attr-defined]
    assert have_ended(raylets)
    assert max(submitted_counts) == 2 * JOBS_PER_CORE
    assert len(list(tmp_path.iterdir())) < 50


@RAY
def test_a_failure_on_a_cluster_names_its_job(cluster: Any) -> None:
    with pytest.raises(JobFailed, match=r"^cell 7: no such pool$"):
        list(
            RayCluster(cluster.address, workers=1, check=get_common_version).run(
                ["cell 7"], fail_cell_7
            )
        )


@RAY
def test_machines_with_other_code_are_refused(cluster: Any) -> None:
    with pytest.raises(BylotError, match=r"runs code \d+ \(here \d+\).*install the same"):
        list(
            RayCluster(cluster.address, workers=1, check=get_process_id).run(
                ["cell 1"], fail_cell_7
            )
        )


def test_a_machine_without_bylot_reports_the_failed_import() -> None:
    answer = make_remote_task()({"bylot": "1.0"}, pickle.dumps(fail_to_import_bylot), b"", b"")
    assert answer == (socket.gethostname(), {"bylot": "none (No module named 'bylot')"})


def fail_to_import_bylot() -> str:
    """Raise the error of a machine on which bylot is not installed."""
    raise ModuleNotFoundError("No module named 'bylot'")


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BylotError, match=r"pip install '\.\[ray\]'"):
        list(RayCluster(None, workers=1, check=get_common_version).run([1], str))


@RAY
def test_an_address_without_a_cluster_gives_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(
        BylotError, match=f"nothing answers at 127.0.0.1:{port}.*ray start"
    ) as raised:
        list(RayCluster(f"127.0.0.1:{port}", workers=1, check=get_common_version).run([1], str))
    assert "\n" not in str(raised.value)
    with pytest.raises(BylotError, match="expected host:port"):
        list(RayCluster("here", workers=1, check=get_common_version).run([1], str))


CTRL_C = """
import sys, time
from bylot_paper.cluster import RayCluster
try:
    for done in RayCluster(sys.argv[1], workers=1, check=str).run([0.0, 3600.0], time.sleep):
        print(done.job, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@RAY
def test_ctrl_c_does_not_wait_for_the_cluster(cluster: Any) -> None:
    command = [sys.executable, "-c", CTRL_C, cluster.address]
    with subprocess.Popen(command, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0.0\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "stopped\n"
