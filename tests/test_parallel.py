"""Jobs on threads: all of them once, timed, stopped without a hang, failures named."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from bylot._text import print_progress
from bylot.errors import BylotError
from bylot.parallel import JobFailed, ProgressLines, ThreadEngine, show_progress


def test_every_job_is_returned_once_with_its_result() -> None:
    done = list(ThreadEngine(3).run(range(50), lambda n: n * n))
    assert sorted((one.job, one.result) for one in done) == [(n, n * n) for n in range(50)]


def test_without_jobs_nothing_runs() -> None:
    assert list(ThreadEngine(3).run([], lambda n: 1 / 0)) == []


def test_jobs_run_in_parallel() -> None:
    meeting = threading.Barrier(3)  # passed only by three at once; broken after 30 s
    assert len(list(ThreadEngine(3).run(range(3), lambda _: meeting.wait(timeout=30)))) == 3


def test_results_are_returned_as_they_finish() -> None:
    last = threading.Event()

    def work(name: str) -> str:
        return name if name == "quick" else f"slow {last.wait(timeout=30)}"

    run = ThreadEngine(2).run(["slow", "quick"], work)
    assert next(run).result == "quick"
    last.set()
    assert next(run).result == "slow True"


def test_core_seconds_count_work_and_not_waiting() -> None:
    def work(name: str) -> None:
        if name == "wait":
            time.sleep(0.5)
        else:
            start = time.thread_time()
            while time.thread_time() - start < 0.2:
                sum(range(1000))

    spent = {done.job: done.core_seconds for done in ThreadEngine(2).run(["wait", "work"], work)}
    assert spent["wait"] < 0.1
    assert 0.2 <= spent["work"] < 0.5


def count_blas_threads() -> set[int]:
    """How many threads each BLAS of this process may use."""
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.mark.skipif(os.cpu_count() == 1, reason="BLAS has one thread here in any case")
def test_blas_uses_one_thread_during_the_run_and_as_many_as_before_after_it() -> None:
    np.eye(2) @ np.eye(2)
    before = count_blas_threads()
    assert before != {1}
    assert [
        done.result for done in ThreadEngine(2).run([0, 1], lambda _: count_blas_threads())
    ] == [{1}] * 2
    assert count_blas_threads() == before


def test_a_failure_is_raised_with_its_job_after_the_finished_results() -> None:
    failing = threading.Event()

    def work(job: str) -> str:
        if job == "bad":
            failing.set()
            raise BylotError("no such pool")
        failing.wait(timeout=30)
        return job

    run = ThreadEngine(2).run(["good", "bad", *(f"later {i}" for i in range(1000))], work)
    seen: list[str] = []
    with pytest.raises(JobFailed, match=r"^bad: no such pool$"):
        seen.extend(done.job for done in run)
    assert "good" in seen
    assert len(seen) < 1000  # jobs that had not started were dropped


def test_a_bug_in_a_job_is_raised_with_its_traceback() -> None:
    def work(job: str) -> float:
        return 1 / len(job[:0])

    with pytest.raises(JobFailed, match=r"(?s)^cell a failed.*in work.*ZeroDivisionError"):
        list(ThreadEngine(1).run(["cell a"], work))


def test_closing_finishes_running_jobs_and_starts_no_others() -> None:
    started, ended = [], []

    def work(job: int) -> None:
        started.append(job)
        time.sleep(0.05)
        ended.append(job)

    run = ThreadEngine(2).run(range(100), work)
    next(run)
    assert isinstance(run, Iterator)
    run.close()  # type: ignore[attr-defined]
    assert sorted(started) == sorted(ended)
    assert len(started) < 10


def test_zero_workers_are_refused() -> None:
    with pytest.raises(BylotError, match="invalid number of workers 0"):
        ThreadEngine(0)


CTRL_C = """
import pathlib, sys, time
from bylot.parallel import ThreadEngine
folder, gate = map(pathlib.Path, sys.argv[1:])
def work(job):
    (folder / str(job)).touch()
    while not gate.exists():
        time.sleep(0.01)
    return job
try:
    for done in ThreadEngine(2).run(range(100), work):
        print(done.job, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
    sys.exit(130)
"""


def start_process_with_two_jobs(folder: Path, gate: Path) -> "subprocess.Popen[str]":
    """A process with two jobs under way that will not end before the gate exists."""
    command = [sys.executable, "-c", CTRL_C, str(folder), str(gate)]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    while len(list(folder.iterdir())) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_ctrl_c_yields_the_running_jobs_and_then_stops(tmp_path: Path) -> None:
    folder, gate = tmp_path / "begun", tmp_path / "gate"
    folder.mkdir()
    with start_process_with_two_jobs(folder, gate) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "press Ctrl-C again" in process.stderr.readline()
        gate.touch()
        out, _ = process.communicate(timeout=60)
    assert sorted(out.split()) == ["0", "1", "stopped"]
    assert process.returncode == 130


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    folder, gate = tmp_path / "begun", tmp_path / "gate"
    folder.mkdir()
    with start_process_with_two_jobs(folder, gate) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)  # the gate does not open: the jobs never end
    assert out.split() == ["stopped"]
    assert process.returncode == 130


def test_progress_off_a_terminal_is_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 4.0, 12.0, 13.0, 40.0])
    advance = ProgressLines(total=1_100, known=100, clock=lambda: next(times))
    for _ in range(4):
        advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "... 300 of 1,100 cells, about 48 s left",
        "... 500 of 1,100 cells, about 60 s left",
    ]
    times = iter([0.0, 12.0])
    ProgressLines(total=2, known=0, clock=lambda: next(times), unit="job")(1)
    assert capsys.readouterr().err == "... 1 of 2 jobs, about 12 s left\n"
    times = iter([0.0, 12.0])
    ProgressLines(total=2, known=0, clock=lambda: next(times), unit="job", alike=False)(1)
    assert capsys.readouterr().err == "... 1 of 2 jobs in 12 s\n"  # the other may take longer


def test_progress_on_a_terminal_is_a_bar_that_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    before = threading.active_count()
    with show_progress(total=10, known=2) as advance:
        advance(8)
        assert threading.active_count() == before
    assert "10/10" in capsys.readouterr().err


def test_without_tqdm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(BylotError, match="pip install"), show_progress(1):
        print_progress("never")
