"""Work for the tests of clusters: every worker imports it, so it imports little itself."""

import os
import time
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bylot.errors import BylotError


def version() -> str:
    """What every worker says of its code, as all run these files."""
    return "same"


def process() -> str:
    """Differs in every process, as code might on every machine."""
    return str(os.getpid())


def blend(
    shared: npt.NDArray[np.float64], marks: Path, job: int
) -> tuple[int, float, npt.NDArray[np.float64]]:
    """Some arithmetic whose last bits depend on the number of threads; leaves a mark at its start.

    A worker's parent is the raylet, the process that stands for a machine.
    """
    (marks / f"{job} {os.getppid()} {uuid.uuid4().hex}").touch()
    time.sleep(0.2)
    assert shared.flags.writeable  # as on threads
    product = (shared + job) @ shared.T
    return job, float(product.sum()), product[:5].copy()


def fail(job: str) -> str:
    """One job cannot be done."""
    if job == "cell 7":
        raise BylotError("no such pool")
    return job
