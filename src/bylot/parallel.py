"""Jobs on threads of this process; meant for compiled work that lets go of the GIL."""

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


@dataclass(frozen=True)
class FinishedJob(Generic[Job, Result]):
    """A finished job, what came of it, and the time that one core spent on it."""

    job: Job
    result: Result
    core_seconds: float


@dataclass(frozen=True)
class FailedJob:
    """A job that raised: text only, as not every exception can travel between machines."""

    text: str


class JobFailed(BylotError):
    """A job raised an error; what had finished until then was yielded before."""


class Engine(Protocol):
    """Runs jobs, in any order, and yields each as it finishes."""

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job], Result]
    ) -> Iterator[FinishedJob[Job, Result]]:
        """Every job once, through `work`; closing the iterator stops what has not started."""
        ...


def attempt_job(work: Callable[[Job], Result], job: Job) -> FinishedJob[Job, Result] | FailedJob:
    """Do one job on the core of this thread; nothing escapes."""
    try:
        limit_blas_threads()
        start = time.thread_time()
        result = work(job)
        return FinishedJob(job, result, time.thread_time() - start)
    except BylotError as error:
        return FailedJob(f"{job}: {error}")
    except BaseException:  # whatever it is, whoever waits for this job must hear of it
        return FailedJob(f"{job} failed, which should not happen:\n{traceback.format_exc()}")


def limit_blas_threads() -> Any:
    """Keep BLAS to one thread: jobs are the parallel part, and more would change sums' last bits.

    OpenMP keeps its limit per thread, so each must ask; as a context, it restores what was.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        raise BylotError(f"engines need threadpoolctl: {install_command('reproduce')}") from None
    return threadpool_limits(1)


Progress = Callable[[int], object]
"""To be called with the number of cells that were finished since."""

PROGRESS_INTERVAL_S = 10.0  # seconds between lines


@contextmanager
def show_progress(total_cells: int, known: int = 0, unit: str = "cell") -> Iterator[Progress]:
    """Shows cells as they are finished, and the time left; `known` were there before.

    >>> with show_progress(total_cells=4, known=1) as advance:
    ...     _ = advance(3)
    """
    if not sys.stderr.isatty():
        yield ProgressLines(total_cells, known, unit=unit)
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        raise BylotError(f"progress needs tqdm: {install_command('reproduce')}") from None

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no thread that watches the bar and outlives it

    with Bar(total=total_cells, initial=known, unit=unit, file=sys.stderr) as bar:
        yield bar.update


class ProgressLines:
    """Progress where nothing can be redrawn: a line at most every ten seconds."""

    def __init__(
        self,
        total: int,
        known: int,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "cell",
    ) -> None:
        self.total, self.known, self.done = total, known, known
        self.clock, self.unit = clock, unit
        self.start = self.last = clock()

    def __call__(self, cells: int) -> None:
        self.done += cells
        now = self.clock()
        if now - self.last >= PROGRESS_INTERVAL_S:
            self.last = now
            left = (now - self.start) * (self.total - self.done) / (self.done - self.known or 1)
            print_progress(
                f"... {self.done:,} of {self.total:,} {self.unit}s, about {format_duration(left)} left"
            )


def format_duration(seconds: float) -> str:
    """A duration, roughly.

    >>> format_duration(48), format_duration(200), format_duration(9_000)
    ('48 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


class ThreadEngine:
    """An engine of a number of threads.

    After Ctrl-C no job starts, those running are finished and yielded, and then KeyboardInterrupt
    is raised; a second Ctrl-C does not wait for them.

    >>> [done.result for done in ThreadEngine(2).run([3], lambda n: n * n)]
    [9]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise BylotError(f"{workers} workers cannot do anything; give 1 or more")
        self.workers = workers

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job], Result]
    ) -> Iterator[FinishedJob[Job, Result]]:
        """Every job once, yielded as it finishes; one that raises ends the run with JobFailed."""
        waiting = deque(jobs)
        finished: queue.SimpleQueue[FinishedJob[Job, Result] | FailedJob] = queue.SimpleQueue()
        # Our own threads, as those of concurrent.futures hold up the end of the process.
        crew = [
            threading.Thread(target=run_worker, args=(waiting, work, finished), daemon=True)
            for _ in range(min(self.workers, len(jobs)))
        ]
        with limit_blas_threads():
            try:
                for thread in crew:
                    thread.start()
                for _ in range(len(jobs)):
                    yield raise_if_failed(finished.get())
            except (JobFailed, KeyboardInterrupt) as stop:
                waiting.clear()
                if isinstance(stop, KeyboardInterrupt):
                    print_progress(
                        "... finishing the jobs that run; press Ctrl-C again not to wait"
                    )
                join_threads(crew)
                yield from drain_finished(finished)
                raise
            except GeneratorExit:
                waiting.clear()
                join_threads(crew)
                raise


def run_worker(
    waiting: deque[Job],
    work: Callable[[Job], Result],
    finished: "queue.SimpleQueue[FinishedJob[Job, Result] | FailedJob]",
) -> None:
    """The life of a thread: one job after the other, until none waits."""
    while True:
        try:
            job = waiting.popleft()
        except IndexError:
            return
        finished.put(attempt_job(work, job))


def raise_if_failed(end: FinishedJob[Job, Result] | FailedJob) -> FinishedJob[Job, Result]:
    """The job if it is done; its error is raised if it failed."""
    if isinstance(end, FailedJob):
        raise JobFailed(end.text)
    return end


def drain_finished(
    finished: "queue.SimpleQueue[FinishedJob[Job, Result] | FailedJob]",
) -> Iterator[FinishedJob[Job, Result]]:
    """What else was done, once nobody works any more; one failure is enough to report."""
    while not finished.empty():
        end = finished.get()
        if isinstance(end, FinishedJob):
            yield end


def join_threads(crew: Sequence[threading.Thread]) -> None:
    """Wait for the jobs that run; Ctrl-C interrupts this."""
    for thread in crew:
        if thread.ident is not None:
            thread.join()
