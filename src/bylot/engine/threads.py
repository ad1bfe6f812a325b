"""Jobs on threads of this process; meant for compiled work that lets go of the GIL."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from bylot.engine.job import Done, Failed, Job, JobFailed, Result, attempt, one_core
from bylot.errors import BylotError
from bylot.text import say


class Threads:
    """An engine of a number of threads.

    After Ctrl-C no job starts, those running are finished and yielded, and then KeyboardInterrupt
    is raised; a second Ctrl-C does not wait for them.

    >>> [done.result for done in Threads(2).run([3], lambda n: n * n)]
    [9]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise BylotError(f"{workers} workers cannot do anything; give 1 or more")
        self.workers = workers

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job], Result]
    ) -> Iterator[Done[Job, Result]]:
        """Every job once, yielded as it finishes; one that raises ends the run with JobFailed."""
        waiting = deque(jobs)
        finished: queue.SimpleQueue[Done[Job, Result] | Failed] = queue.SimpleQueue()
        # Our own threads, as those of concurrent.futures hold up the end of the process.
        crew = [
            threading.Thread(target=serve, args=(waiting, work, finished), daemon=True)
            for _ in range(min(self.workers, len(jobs)))
        ]
        with one_core():
            try:
                for thread in crew:
                    thread.start()
                for _ in range(len(jobs)):
                    yield good(finished.get())
            except (JobFailed, KeyboardInterrupt) as stop:
                waiting.clear()
                if isinstance(stop, KeyboardInterrupt):
                    say("... finishing the jobs that run; press Ctrl-C again not to wait")
                join(crew)
                yield from rest(finished)
                raise
            except GeneratorExit:
                waiting.clear()
                join(crew)
                raise


def serve(
    waiting: deque[Job],
    work: Callable[[Job], Result],
    finished: "queue.SimpleQueue[Done[Job, Result] | Failed]",
) -> None:
    """The life of a thread: one job after the other, until none waits."""
    while True:
        try:
            job = waiting.popleft()
        except IndexError:
            return
        finished.put(attempt(work, job))


def good(end: Done[Job, Result] | Failed) -> Done[Job, Result]:
    """The job if it is done; its error is raised if it failed."""
    if isinstance(end, Failed):
        raise JobFailed(end.text)
    return end


def rest(
    finished: "queue.SimpleQueue[Done[Job, Result] | Failed]",
) -> Iterator[Done[Job, Result]]:
    """What else was done, once nobody works any more; one failure is enough to report."""
    while not finished.empty():
        end = finished.get()
        if isinstance(end, Done):
            yield end


def join(crew: Sequence[threading.Thread]) -> None:
    """Wait for the jobs that run; Ctrl-C interrupts this."""
    for thread in crew:
        if thread.ident is not None:
            thread.join()
