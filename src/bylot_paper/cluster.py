"""Jobs on a Ray cluster: one of this machine's cores, or one that runs at an address.

A lost worker or machine costs the jobs it had, which are run again elsewhere.
"""

import contextlib
import functools
import logging
import os
import pickle
import platform
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from bylot._text import print_progress
from bylot.errors import BylotError, install_command
from bylot.parallel import FailedJob, FinishedJob, Job, JobFailed, Result
from bylot.version import __version__


def describe_process(check: Callable[[], str]) -> dict[str, str]:
    """Versions by name, and whatever `check` says, as the code.

    >>> describe_process(lambda: "4f1d")["code"]
    '4f1d'
    """
    return {**list_versions(), "code": check()}


@functools.cache
def list_versions() -> dict[str, str]:
    """Of this process; they are files to read, so once is enough."""
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"Python": platform.python_version(), "bylot": __version__, **packages}


def list_version_differences(here: dict[str, str], there: dict[str, str]) -> list[str]:
    """What is not the same, as text.

    >>> list_version_differences(
    ...     {"Python": "3.11.7", "bylot": "1.0"}, {"Python": "3.11.7", "bylot": "0.9"}
    ... )
    ['bylot 0.9 (here 1.0)']
    """
    return [
        f"{name} {there.get(name, 'unknown')} (here {mine})"
        for name, mine in here.items()
        if there.get(name) != mine
    ]


MAX_JOB_LOSSES = 16  # losses of one and the same job until it is taken to be the job's own fault
JOBS_PER_CORE = 4  # jobs handed to the cluster ahead of time, so that no core waits for us
OBJECT_STORE_BYTES = (
    256 * 2**20
)  # bytes for objects of a cluster of our own: one work, a few results
RAY_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning about accelerators we do not use
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # its messages would come on standard output: we tell
    "RAY_enable_metrics_collection": "0",
}


class RayCluster:
    """An engine of many machines.

    address: of a running cluster (`host:port`, `ray://host:port` or `auto`), which is left running;
             without one, a cluster of `workers` cores is started here, and ended after the run
    check:   called here and in every worker, and has to say the same, as versions have to

    Ctrl-C yields what has finished and then raises KeyboardInterrupt, without waiting.
    """

    def __init__(self, address: str | None, workers: int, check: Callable[[], str]) -> None:
        if workers < 1:
            raise BylotError(f"{workers} workers cannot do anything; give 1 or more")
        self.address, self.workers, self.check = address, workers, check
        import_quiet_ray()  # if it is not installed, better now than after some work

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job], Result]
    ) -> Iterator[FinishedJob[Job, Result]]:
        """Every job once, yielded as it finishes; one that raises ends the run with JobFailed."""
        ray = import_quiet_ray()
        self.connect(ray)
        try:
            yield from ClusterRun(ray, jobs, work, self.check).landings()
        finally:
            ray.shutdown()  # with it end our jobs, and the cluster only if we started it

    def connect(self, ray: Any) -> None:
        """Join the cluster at the address, or start one."""
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self.address is None:
            where = {
                "address": "local",  # else Ray would join any cluster that it finds here
                "num_cpus": self.workers,
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_node_ip_address": "127.0.0.1",  # Ray asks nobody for a password
            }
        else:
            check_cluster_address(self.address)
            where = {"address": self.address}
        try:
            ray.init(**where, **quiet)
        except Exception as error:
            raise BylotError(
                f"Ray at {self.address or 'this machine'} cannot be used: {format_first_line(error)}"
            ) from error


def import_quiet_ray() -> Any:
    """Ray, told to be silent and to call nobody; it is an extra, so its absence is explained."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # read when Ray is imported
    try:
        import ray
    except ModuleNotFoundError:
        raise BylotError(f"a cluster needs Ray: {install_command('ray')}") from None
    return ray


def check_cluster_address(address: str) -> None:
    """Is anybody there? Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise BylotError(f"{address!r} is no address of a cluster; give host:port or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise BylotError(
            f"nothing answers at {address} ({error}); start a cluster with `ray start --head`, "
            "or leave the address out"
        ) from None


class ClusterRun:
    """The jobs of one run: waiting here, or handed to the cluster and not yet back."""

    def __init__(
        self,
        ray: Any,
        jobs: Sequence[Job],
        work: Callable[[Job], Result],
        check: Callable[[], str],
    ) -> None:
        self.ray, self.waiting, self.known_cores = ray, deque(jobs), -1
        self.out: dict[Any, Any] = {}  # the reference to a result -> its job
        self.here = describe_process(check)
        self.check = ray.cloudpickle.dumps(check)
        # One piece of bytes: of arrays, Ray would hand out read-only views, which are another type
        # to compiled code.
        self.work = ray.put(ray.cloudpickle.dumps(work))
        self.task = ray.remote(num_cpus=1, max_retries=MAX_JOB_LOSSES)(make_remote_task())

    def landings(self) -> Iterator[FinishedJob[Any, Any]]:
        """Hand out jobs, a few for every core that there is now; yield them as they come back."""
        try:
            while self.waiting or self.out:
                self.launch(JOBS_PER_CORE * self.cores())
                ready, _ = self.ray.wait(list(self.out), timeout=1.0)
                for reference in ready:
                    yield self.unpacked(reference, self.out.pop(reference))
        except (BylotError, KeyboardInterrupt):
            yield from self.landed()
            raise

    def launch(self, most: int) -> None:
        """Hand out jobs until so many are out."""
        while self.waiting and len(self.out) < most:
            job = self.waiting.popleft()
            packed = self.ray.cloudpickle.dumps(job)
            self.out[self.task.remote(self.here, self.check, self.work, packed)] = job

    def cores(self) -> int:
        """How many the cluster has at this moment; at least one is hoped for."""
        found = int(self.ray.cluster_resources().get("CPU", 0))
        if found != self.known_cores:
            print_progress(f"... cores of the cluster: {found or 'none yet, waiting for some'}")
            self.known_cores = found
        return max(found, 1)

    def unpacked(self, reference: Any, job: Any) -> FinishedJob[Any, Any]:
        """What came back, if it is a result."""
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            raise JobFailed(f"{job} could not be run on the cluster: {error}") from None
        if isinstance(answer, tuple):
            host, there = answer
            what = ", ".join(list_version_differences(self.here, there))
            raise BylotError(
                f"machine {host} of the cluster runs {what}: results could differ; install the "
                "same versions on all machines"
            )
        end = pickle.loads(answer)
        if isinstance(end, FailedJob):
            raise JobFailed(end.text)
        return FinishedJob(job, end.result, end.core_seconds)

    def landed(self) -> Iterator[FinishedJob[Any, Any]]:
        """What is back already."""
        if not self.out:
            return
        ready, _ = self.ray.wait(list(self.out), num_returns=len(self.out), timeout=0)
        for reference in ready:
            with contextlib.suppress(BylotError):  # one failure is enough to report
                yield self.unpacked(reference, self.out.pop(reference))


def make_remote_task() -> Callable[..., bytes | tuple[str, dict[str, str]]]:
    """What a worker runs; made here so that it travels whole, to where no bylot may be."""

    def serve(
        here: dict[str, str], check: bytes, work: bytes, job: bytes
    ) -> bytes | tuple[str, dict[str, str]]:
        import pickle
        import socket

        try:
            from bylot.parallel import attempt_job

            there = describe_process(pickle.loads(check))
        except Exception as error:  # no bylot, or another one
            there = {"bylot": f"none ({error})"}
        if there != here:
            return socket.gethostname(), there
        return pickle.dumps(attempt_job(pickle.loads(work), pickle.loads(job)))

    return serve


def format_first_line(error: Exception) -> str:
    """An error in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
