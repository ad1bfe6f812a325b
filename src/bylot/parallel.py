"""Jobs on threads of this process, for compiled work that releases the GIL, and progress."""

import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bylot._text import print_progress
from bylot.errors import BylotError, install_command

Job = TypeVar("Job")
Result = TypeVar("Result")

PROGRESS_INTERVAL_S = 10.0


@dataclass(frozen=True)
class FinishedJob(Generic[Job, Result]):
    """A job, its result, and its CPU time on one core."""

    job: Job
    result: Result
    core_seconds: float


FinishedJobs = Iterator[FinishedJob[Job, Result]]


@dataclass(frozen=True)
class FailedJob:
    """The error of a job as text, as not every exception can be sent between machines."""

    text: str


class JobFailed(BylotError):
    """A job raised an error; the jobs finished before were yielded."""


class Engine(Protocol):
    """Runs jobs in any order; the `str` of a job names it in errors."""

    def run(self, jobs: Sequence[Job], work: Callable[[Job], Result]) -> FinishedJobs[Job, Result]:
        """Run each job once and yield it when finished; closing the iterator stops the run."""


def attempt_job(work: Callable[[Job], Result], job: Job) -> FinishedJob[Job, Result] | FailedJob:
    """Run one job in this thread; never raises."""
    try:
        limit_blas_threads()
        start = time.thread_time()
        return FinishedJob(job, work(job), time.thread_time() - start)
    except BylotError as error:
        return FailedJob(f"{job}: {error}")
    except BaseException:  # whoever waits for this job must learn about it
        return FailedJob(f"{job} failed unexpectedly:\n{traceback.format_exc()}")


def limit_blas_threads() -> Any:
    """Limit BLAS to one thread: jobs are the parallel part, and more threads change rounding.

    OpenMP has a limit per thread, so each thread must call this; a context restores the limit.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        raise BylotError(
            "parallel jobs need threadpoolctl", remedy=install_command("plot")
        ) from None
    return threadpool_limits(1)


@contextmanager
def show_progress(
    total: int, known: int = 0, unit: str = "cell", alike: bool = True
) -> Iterator[Callable[[int], object]]:
    """Show finished jobs and the remaining time on standard error; `known` were done before.

    What it yields is to be called with the number of jobs finished since the last call.

    If jobs are not alike, those finished do not tell how long the others take: the time so far is
    shown instead.

    >>> with show_progress(total=4, known=1) as advance:
    ...     _ = advance(3)
    """
    if not sys.stderr.isatty():
        yield ProgressLines(total, known, unit=unit, alike=alike)
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        raise BylotError("progress needs tqdm", remedy=install_command("plot")) from None

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no monitoring thread that outlives the bar

    shown = None if alike else "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
    with Bar(total=total, initial=known, unit=unit, file=sys.stderr, bar_format=shown) as bar:
        yield bar.update


@dataclass
class ProgressLines:
    """Progress without a terminal: a line every ten seconds."""

    total: int
    known: int
    clock: Callable[[], float] = time.monotonic
    unit: str = "cell"
    alike: bool = True

    def __post_init__(self) -> None:
        self.done, self.start = self.known, self.clock()
        self.last = self.start

    def __call__(self, count: int) -> None:
        self.done += count
        now = self.clock()
        if now - self.last >= PROGRESS_INTERVAL_S:
            self.last = now
            so_far = now - self.start
            rest = so_far * (self.total - self.done) / (self.done - self.known or 1)
            left = f", about {format_duration(rest)} left"
            when = left if self.alike else f" in {format_duration(so_far)}"
            print_progress(f"... {self.done:,} of {self.total:,} {self.unit}s{when}")


def format_duration(seconds: float) -> str:
    """A duration, rounded.

    >>> format_duration(48), format_duration(200), format_duration(9_000)
    ('48 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


class ThreadEngine:
    """An engine of `workers` threads.

    After Ctrl-C no job is started, the running ones are finished and yielded, and then
    KeyboardInterrupt is raised; a second Ctrl-C does not wait for them.

    >>> [done.result for done in ThreadEngine(2).run([3], lambda n: n * n)]
    [9]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise BylotError("number of workers", got=workers, expected="1 or more")
        self.workers = workers

    def run(self, jobs: Sequence[Job], work: Callable[[Job], Result]) -> FinishedJobs[Job, Result]:
        """Run each job once and yield it when it is finished; raise JobFailed if one fails."""
        waiting = deque(jobs)
        finished: queue.SimpleQueue[FinishedJob[Job, Result] | FailedJob] = queue.SimpleQueue()

        def run_worker() -> None:
            while True:
                try:
                    job = waiting.popleft()
                except IndexError:
                    return
                finished.put(attempt_job(work, job))

        # Daemon threads, as those of concurrent.futures delay the end of the process.
        threads = [
            threading.Thread(target=run_worker, daemon=True)
            for _ in range(min(self.workers, len(jobs)))
        ]
        with limit_blas_threads():
            try:
                for thread in threads:
                    thread.start()
                for _ in range(len(jobs)):
                    end = finished.get()
                    if isinstance(end, FailedJob):
                        raise JobFailed(end.text)
                    yield end
            except (JobFailed, KeyboardInterrupt, GeneratorExit) as stop:
                waiting.clear()
                if isinstance(stop, KeyboardInterrupt):
                    print_progress("... finishing the running jobs; press Ctrl-C again to abort")
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()  # a second Ctrl-C interrupts this
                while not (isinstance(stop, GeneratorExit) or finished.empty()):
                    if isinstance(end := finished.get(), FinishedJob):  # one failure is enough
                        yield end
                raise
