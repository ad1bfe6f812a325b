"""Where a crowd comes from: files, the TREC data, or a synthetic crowd that resembles them."""

import os
from os import PathLike
from pathlib import Path

import numpy as np

from bylot._text import print_progress
from bylot.errors import DataError, DataUnreachable
from bylot.numerics.jit import Floats, Ints
from bylot.outcome_tables.text_lines import data_error
from bylot_paper.crowd import Annotation, Crowd, assemble_crowd
from bylot_paper.crowd_files import read_crowd
from bylot_paper.trec import (
    TREC_CROWD_FILE,
    TREC_TRUTH_FILE,
    fetch_trec,
    find_cached_trec,
    read_trec,
)

WORKER_COUNT, TASK_COUNT, RELIABLE_COUNT = 677, 2275, 270
UNRELIABLE_COUNTS = (154, 137, 62, 54)  # TREC's workers with 1, 2, 3 and 4 annotations
LOAD_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
LOAD_QUANTILES = (5.0, 5.5, 7.5, 14.0, 51.5, 97.0, 168.0, 406.0, 968.0)  # TREC's at these shares
TASK_CROWDING = (41, 60, 105, 371, 902, 86, 166, 250, 225, 69)  # TREC's, of 1 to 10 annotations
SYNTHETIC_STREAM = 3 << 32  # random stream, distinct from those of policies and pools
SYNTHETIC_NAME = "synthetic"


def make_synthetic_crowd(seed: int = 0) -> Crowd:
    """Make a synthetic crowd with the marginals of TREC's.

    677 workers, 270 of them with at least 5 annotations, 2,275 tasks, about 13,100 annotations.
    A reliable worker's load follows TREC's quantiles (5, 7, 13.5, 51, 967 at 0, 1/4, 1/2, 3/4, 1).
    A worker with n annotations is right with probability p ~ Beta(19 m, 19 (1 - m)),
    m = 0.78 - 0.036 log n: busy workers are less accurate, and about 7% of the reliable never err.
    """
    rng = np.random.Generator(np.random.Philox(key=seed + (SYNTHETIC_STREAM << 64)))
    load = draw_loads(rng)
    m = 0.78 - 0.036 * np.log(load)
    accuracy = rng.beta(19 * m, 19 * (1 - m))
    chosen = assign_tasks(rng, load)
    names = rng.permutation(WORKER_COUNT) + 1  # names carry no information
    return assemble_crowd(
        "synthetic",
        (
            Annotation(str(task + 1), str(names[i]), right)
            for i, tasks in enumerate(chosen)
            for task, right in zip(tasks, rng.random(len(tasks)) < accuracy[i], strict=True)
        ),
        synthetic=True,
    )


def draw_loads(rng: np.random.Generator) -> Ints:
    """Draw the number of tasks of each worker: a quantile from each of 270 equal parts, then the
    unreliable. Between TREC's quantiles the logarithm of the load is linear.
    """
    share = (np.arange(RELIABLE_COUNT) + rng.random(RELIABLE_COUNT)) / RELIABLE_COUNT
    many = np.floor(np.exp(np.interp(share, LOAD_SHARES, np.log(LOAD_QUANTILES)))).astype(np.int64)
    few = np.repeat(np.arange(1, 5), UNRELIABLE_COUNTS)
    return np.concatenate([many, few])


def assign_tasks(rng: np.random.Generator, load: Ints) -> list[Ints]:
    """Assign different tasks to each worker so that every task has one and some are more popular:
    a worker gets the tasks that lack most of their crowd, those without anybody first.
    """
    size: Floats = rng.permutation(np.repeat(np.arange(1.0, 11.0), TASK_CROWDING))
    taken = np.zeros(TASK_COUNT)
    chosen = [np.empty(0, np.int64)] * len(load)
    for i in rng.permutation(len(load)):
        full = (taken + rng.random(TASK_COUNT)) / size
        chosen[i] = np.argsort(np.where(taken == 0, full - TASK_COUNT, full))[: load[i]]
        taken[chosen[i]] += 1
    return chosen


def find_crowd(where: str | PathLike[str] | None = None, offline: bool = False) -> Crowd:
    """Find a crowd: the TREC files in the folder `where`, or "synthetic".

    Without `where`: what $BYLOT_DATA names; else TREC from the user's cache, or downloaded into it;
    and if that fails or is not allowed, the synthetic crowd, with a note on standard error.
    """
    named = where if where is not None else os.environ.get("BYLOT_DATA")
    if named:
        return read_named_crowd(str(named))
    if where is not None:
        raise DataError("data", got=where, expected=f"a folder or {SYNTHETIC_NAME!r}")
    if offline:
        return find_offline_crowd()
    try:
        folder = fetch_trec()
    except DataUnreachable as error:
        print_progress(f"{error}\nno TREC data: using a synthetic crowd, and results will say so")
        return make_synthetic_crowd()
    return read_trec(folder)


def find_offline_crowd() -> Crowd:
    """TREC from the cache, else the synthetic crowd."""
    folder = find_cached_trec()
    if all((folder / name).is_file() for name in (TREC_CROWD_FILE, TREC_TRUTH_FILE)):
        return read_trec(folder)
    print_progress("no TREC data (see `bylot data fetch trec`): using a synthetic crowd")
    return make_synthetic_crowd()


def read_named_crowd(where: str) -> Crowd:
    """Read the crowd that was asked for, or raise."""
    if where == SYNTHETIC_NAME:
        return make_synthetic_crowd()
    folder = Path(where)
    if not folder.is_dir():
        files = f"{TREC_CROWD_FILE} and {TREC_TRUTH_FILE}"
        remedy = f"give a folder with {files}, or {SYNTHETIC_NAME!r}"
        raise data_error(folder, "is not a folder", remedy)
    return read_trec(folder)


def crowd_from_files(crowd_file: str | PathLike[str], truth_file: str | PathLike[str]) -> Crowd:
    """Read a user's own crowd, named after its first file; see `read_crowd`."""
    return read_crowd(crowd_file, truth_file, name=Path(crowd_file).stem)
