"""One job, wherever it runs: done on one core and timed, or failed and named.

What a job is, and what is made of it, is the caller's; its `str` names it in errors.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bylot.errors import BylotError
from bylot.extras import install

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Done(Generic[Job, Result]):
    """A finished job, what came of it, and the time that one core spent on it."""

    job: Job
    result: Result
    core_seconds: float


@dataclass(frozen=True)
class Failed:
    """A job that raised: text only, as not every exception can travel between machines."""

    text: str


class JobFailed(BylotError):
    """A job raised an error; what had finished until then was yielded before."""


class Engine(Protocol):
    """Runs jobs, in any order, and yields each as it finishes."""

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job], Result]
    ) -> Iterator[Done[Job, Result]]:
        """Every job once, through `work`; closing the iterator stops what has not started."""
        ...


def attempt(work: Callable[[Job], Result], job: Job) -> Done[Job, Result] | Failed:
    """Do one job on the core of this thread; nothing escapes."""
    try:
        one_core()
        start = time.thread_time()
        result = work(job)
        return Done(job, result, time.thread_time() - start)
    except BylotError as error:
        return Failed(f"{job}: {error}")
    except BaseException:  # whatever it is, whoever waits for this job must hear of it
        return Failed(f"{job} failed, which should not happen:\n{traceback.format_exc()}")


def one_core() -> Any:
    """Keep BLAS to one thread: jobs are the parallel part, and more would change sums' last bits.

    OpenMP keeps its limit per thread, so each must ask; as a context, it restores what was.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        raise BylotError(f"engines need threadpoolctl: {install('reproduce')}") from None
    return threadpool_limits(1)
