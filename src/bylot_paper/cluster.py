"""Run jobs on a Ray cluster: one started on this machine, or a running one at an address.

If a worker or machine is lost, its jobs are run again elsewhere.
"""

import contextlib
import logging
import os
import pickle
import platform
import socket
from collections import deque
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from bylot import __version__
from bylot._text import print_progress
from bylot.errors import BylotError, install_command
from bylot.parallel import FailedJob, FinishedJob, FinishedJobs, Job, JobFailed, Result

MAX_JOB_LOSSES = 16  # lost runs of one job before the job itself is blamed
JOBS_PER_CORE = 4  # submitted ahead of time, so that no core waits
OBJECT_STORE_BYTES = 256 * 2**20  # of a cluster started here: one work function, a few results
RAY_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning about accelerators we do not use
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # its messages would go to standard output
    "RAY_enable_metrics_collection": "0",
}


def describe_process(check: Callable[[], str]) -> dict[str, str]:
    """Versions by name, and the result of `check` as the code: equal on all machines of a run.

    >>> describe_process(lambda: "4f1d")["code"]
    '4f1d'
    """
    return {
        "Python": platform.python_version(),
        "bylot": __version__,
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
        "code": check(),
    }


class RayCluster:
    """An engine of many machines.

    address: of a running cluster (`host:port`, `ray://host:port` or `auto`), which is left running;
             without one, a cluster of `workers` cores is started here and stopped after the run
    check: called here and in every worker; the results must be equal

    Ctrl-C yields the finished jobs and then raises KeyboardInterrupt, without waiting.
    """

    def __init__(self, address: str | None, workers: int, check: Callable[[], str]) -> None:
        if workers < 1:
            raise BylotError("number of workers", got=workers, expected="1 or more")
        self.address, self.workers, self.check = address, workers, check
        import_quiet_ray()  # fail now if it is not installed, not after some work

    def run(self, jobs: Sequence[Job], work: Callable[[Job], Result]) -> FinishedJobs[Job, Result]:
        """Run every job once and yield it as it finishes; one that raises ends the run."""
        ray = import_quiet_ray()
        self.connect(ray)
        try:
            yield from ClusterRun(ray, jobs, work, self.check).run()
        finally:
            ray.shutdown()  # cancels our jobs; stops the cluster only if we started it

    def connect(self, ray: Any) -> None:
        """Join the cluster at the address, or start one."""
        options: dict[str, Any] = {"address": self.address}
        if self.address is None:
            options = {
                "address": "local",  # otherwise Ray would join any cluster that it finds here
                "num_cpus": self.workers,
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_node_ip_address": "127.0.0.1",  # Ray has no authentication
            }
        else:
            check_cluster_address(self.address)
        try:
            ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BylotError(
                f"cannot use Ray at {self.address or 'localhost'}: {reason}"
            ) from error


def import_quiet_ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # Ray reads them when it is imported
    try:
        import ray
    except ModuleNotFoundError:
        raise BylotError("a cluster needs ray", remedy=install_command("ray")) from None
    return ray


def check_cluster_address(address: str) -> None:
    """Check that something answers there; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise BylotError("cluster address", got=address, expected="host:port or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise BylotError(
            f"nothing answers at {address} ({error})",
            remedy="start a cluster with `ray start --head`, or leave the address out",
        ) from None


class ClusterRun:
    """The jobs of one run: waiting here, or submitted to the cluster."""

    def __init__(
        self, ray: Any, jobs: Sequence[Job], work: Callable[[Job], Result], check: Callable[[], str]
    ) -> None:
        self.ray, self.waiting, self.core_count = ray, deque(jobs), -1
        self.submitted: dict[Any, Any] = {}  # reference to a result -> its job
        self.here = describe_process(check)
        self.check = ray.cloudpickle.dumps(check)
        # As bytes: of arrays Ray would return read-only views, another type to compiled code.
        self.work = ray.put(ray.cloudpickle.dumps(work))
        self.task = ray.remote(num_cpus=1, max_retries=MAX_JOB_LOSSES)(make_remote_task())

    def run(self) -> FinishedJobs[Any, Any]:
        """Keep a few jobs per core submitted; yield jobs as they finish, also after an error."""
        try:
            while self.waiting or self.submitted:
                self.submit()
                ready, _ = self.ray.wait(list(self.submitted), timeout=1.0)
                for reference in ready:
                    yield self.fetch_result(reference, self.submitted.pop(reference))
        except (BylotError, KeyboardInterrupt):
            left = list(self.submitted)
            ready, _ = self.ray.wait(left, num_returns=len(left), timeout=0) if left else ([], [])
            for reference in ready:
                with contextlib.suppress(BylotError):  # one failure is reported already
                    yield self.fetch_result(reference, self.submitted.pop(reference))
            raise

    def submit(self) -> None:
        """Submit a few jobs for each core that the cluster has now."""
        cores = int(self.ray.cluster_resources().get("CPU", 0))
        if cores != self.core_count:
            print_progress(f"... cores of the cluster: {cores or 'none yet, waiting for some'}")
            self.core_count = cores
        while self.waiting and len(self.submitted) < JOBS_PER_CORE * max(cores, 1):
            job = self.waiting.popleft()
            reference = self.task.remote(
                self.here, self.check, self.work, self.ray.cloudpickle.dumps(job)
            )
            self.submitted[reference] = job

    def fetch_result(self, reference: Any, job: Any) -> FinishedJob[Any, Any]:
        """Fetch a result, or raise what went wrong."""
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            raise JobFailed(f"{job} could not be run on the cluster: {error}") from None
        if isinstance(answer, tuple):
            host, there = answer
            other = ", ".join(
                f"{name} {there.get(name, 'unknown')} (here {mine})"
                for name, mine in self.here.items()
                if there.get(name) != mine
            )
            raise BylotError(
                f"machine {host} of the cluster runs {other}, so results could differ",
                remedy="install the same versions on all machines",
            )
        end = pickle.loads(answer)
        if isinstance(end, FailedJob):
            raise JobFailed(end.text)
        return FinishedJob(job, end.result, end.core_seconds)


def make_remote_task() -> Callable[..., bytes | tuple[str, dict[str, str]]]:
    """Make the function of workers: a closure is pickled as a whole, so it needs no bylot there."""

    def run_remotely(
        here: dict[str, str], check: bytes, work: bytes, job: bytes
    ) -> bytes | tuple[str, dict[str, str]]:
        import pickle
        import socket

        try:
            from bylot.parallel import attempt_job
            from bylot_paper.cluster import describe_process

            there = describe_process(pickle.loads(check))
        except Exception as error:  # no bylot, or another version
            there = {"bylot": f"none ({error})"}
        if there != here:
            return socket.gethostname(), there
        return pickle.dumps(attempt_job(pickle.loads(work), pickle.loads(job)))

    return run_remotely
