"""Jobs for the tests of clusters: every worker imports this module, so it imports little."""

import os
import time
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bylot.errors import BylotError


def get_common_version() -> str:
    """A version that is the same in every worker."""
    return "same"


def get_process_id() -> str:
    """A version that differs in every process."""
    return str(os.getpid())


def multiply_matrices(
    shared: npt.NDArray[np.float64], marks: Path, job: int
) -> tuple[int, float, npt.NDArray[np.float64]]:
    """Arithmetic whose last bits depend on the number of threads; leaves a mark when it starts.

    A worker's parent is the raylet, the process that represents a machine.
    """
    (marks / f"{job} {os.getppid()} {uuid.uuid4().hex}").touch()
    time.sleep(0.2)
    assert shared.flags.writeable  # as on threads
    product = (shared + job) @ shared.T
    return job, float(product.sum()), product[:5].copy()


def fail_cell_7(job: str) -> str:
    """Raise for one of the jobs."""
    if job == "cell 7":
        raise BylotError("no such pool")
    return job
