"""A crowd, who answered which task and whether it was right, and the pools drawn from it."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot._text import format_table
from bylot.errors import DataError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.outcome_tables.sheets import sort_ids
from bylot.problem.validation import lock_array

MIN_ANNOTATIONS = 5  # fewer do not give a reliable accuracy (paper, section 6.1)
PAPER_POOL_SIZE = 50
POOL_STREAM = 2 << 32  # random stream, distinct from those of policies and environments

WORKER_COUNT, TASK_COUNT, RELIABLE_COUNT = 677, 2275, 270
UNRELIABLE_COUNTS = (154, 137, 62, 54)  # TREC's workers with 1, 2, 3 and 4 annotations
LOAD_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
LOAD_QUANTILES = (5.0, 5.5, 7.5, 14.0, 51.5, 97.0, 168.0, 406.0, 968.0)  # TREC's at these shares
TASK_CROWDING = (41, 60, 105, 371, 902, 86, 166, 250, 225, 69)  # TREC's, of 1 to 10 annotations
SYNTHETIC_STREAM = 3 << 32  # random stream, distinct from those of policies and pools
SYNTHETIC_NAME = "synthetic"


@dataclass(frozen=True, eq=False)
class WorkerPool:
    """The workers of one seed (paper, section 6.1), sorted by id; column i is workers[i]."""

    workers: tuple[str, ...]
    skills: Floats  # (N, K): accuracy in each group of tasks; overall accuracy where there is none
    workload: Floats  # (K,): annotations, as a share of the most in the pool
    expert: Floats  # (K,): 1 for the most accurate, else 0
    accuracy: Floats  # (K,): over all annotations
    imputed: int  # entries of skills without an annotation of their own


def draw_workers(seed: int, among: Ints, size: int) -> Ints:
    """Draw so many, all sets equally likely: those with the smallest uniforms, in their order."""
    uniforms = make_generator(seed, POOL_STREAM).random(len(among))
    return among[np.sort(np.argsort(uniforms, kind="stable")[:size])]


def make_generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed + (stream << 64)))


def compute_accuracies(
    group: Ints, place: Ints, correct: Bools, spare: Floats, smoothing: int = 0
) -> tuple[Floats, int]:
    """Share of correct annotations in each cell (group, place), and the number of empty cells.

    spare, of the shape of the result, replaces empty cells. With smoothing s > 0 a cell of n
    annotations, k of them correct, is (k + s m) / (n + s), where m is the mean of its group without
    smoothing: s annotations by an average worker.
    """
    cell = group * spare.shape[1] + place
    count = np.bincount(cell, minlength=spare.size).reshape(spare.shape)
    right = np.bincount(cell, correct, spare.size).reshape(spare.shape)
    empty = count == 0
    share = np.where(empty, spare, right / np.maximum(count, 1))
    if smoothing:
        share = (right + smoothing * share.mean(axis=1, keepdims=True)) / (count + smoothing)
    return share, int(empty.sum())


def flag_most_accurate(accuracy: Floats, experts: int) -> Floats:
    """1 for the given number of highest accuracies, else 0; of equals, the first.

    >>> flag_most_accurate(np.array([0.5, 0.9, 0.5, 0.1]), 2)
    array([1., 1., 0., 0.])
    """
    chosen = np.zeros(len(accuracy))
    chosen[np.argsort(-accuracy, kind="stable")[:experts]] = 1.0
    return chosen


class CrowdCounts(NamedTuple):
    """The size of a crowd; reliable are the workers with at least 5 annotations."""

    workers: int
    tasks: int
    annotations: int
    reliable: int


class UnjudgedCounts(NamedTuple):
    """What the inner join of answers and truths leaves out."""

    annotations: int = 0  # of tasks without a truth
    tasks: int = 0  # annotated, but without a truth
    workers: int = 0  # none of whose tasks has a truth
    unannotated: int = 0  # tasks with a truth that nobody annotated


NO_UNJUDGED = UnjudgedCounts()


class Annotation(NamedTuple):
    """An answer to a task whose truth is known."""

    task: str
    worker: str
    correct: bool


@dataclass(frozen=True, eq=False)
class Crowd:
    """Annotations of tasks whose truth is known, sorted by task and then by worker.

    Two crowds are equal if their digests are: the same annotations, whatever files they were in.
    """

    name: str
    digest: str  # sha256 of tasks, workers and annotations in their order here
    synthetic: bool
    tasks: tuple[str, ...]  # sorted as numbers if all are whole numbers, else as text
    workers: tuple[str, ...]  # likewise
    task: Ints  # of each annotation, an index into tasks
    worker: Ints  # of each annotation, an index into workers
    correct: Bools  # of each annotation
    unjudged: UnjudgedCounts = NO_UNJUDGED

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Crowd) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def counts(self) -> CrowdCounts:
        return CrowdCounts(*map(len, (self.workers, self.tasks, self.correct, self.reliable())))

    @property
    def workload(self) -> Ints:
        return np.bincount(self.worker, minlength=len(self.workers)).astype(np.int64)

    def accuracy(self) -> Floats:
        return np.bincount(self.worker, self.correct, len(self.workers)) / self.workload

    def reliable(self, least: int = MIN_ANNOTATIONS) -> Ints:
        """Indices of the workers with at least this many annotations."""
        return np.flatnonzero(self.workload >= least).astype(np.int64)

    def pool(
        self,
        seed: int,
        size: int = PAPER_POOL_SIZE,
        dimensions: int = 3,
        experts: int = 10,
        smoothing: int = 0,
    ) -> WorkerPool:
        """Draw the pool of a seed: workers, skills and costs (paper, section 6.1).

        The workers do not depend on the number of dimensions. Dimension n is every N-th of the
        sorted tasks of the crowd, starting with the n-th. Smoothing, which the paper does not have,
        adds so many annotations by an average worker to each skill.
        """
        self.check_pool(seed, size, dimensions, experts, smoothing)
        chosen = draw_workers(seed, self.reliable(), size)
        place = np.full(len(self.workers), -1)
        place[chosen] = np.arange(size)
        inside = place[self.worker] >= 0
        accuracy, load = self.accuracy()[chosen], self.workload[chosen]
        skills, imputed = compute_accuracies(
            self.task[inside] % dimensions,
            place[self.worker[inside]],
            self.correct[inside],
            np.broadcast_to(accuracy, (dimensions, size)),
            smoothing,
        )
        return WorkerPool(
            workers=tuple(self.workers[i] for i in chosen),
            skills=lock_array(skills),
            workload=lock_array(load / load.max()),
            expert=lock_array(flag_most_accurate(accuracy, experts)),
            accuracy=lock_array(accuracy),
            imputed=imputed,
        )

    def check_pool(
        self, seed: int, size: int, dimensions: int, experts: int, smoothing: int
    ) -> None:
        """Raise if no such pool can be drawn."""
        for name, got, valid, expected in (
            ("seed of a pool", seed, 0 <= seed < 1 << 64, "a number from 0 to 2^64 - 1"),
            ("size of a pool", size, size >= 1, "at least 1"),
            ("number of dimensions", dimensions, dimensions >= 1, "at least 1"),
            ("number of experts", experts, 0 <= experts <= size, f"a number from 0 to {size}"),
            ("smoothing", smoothing, smoothing >= 0, "0 or more"),
        ):
            if not valid:
                raise DataError(name, got=got, expected=expected)
        if self.counts.reliable < size:
            raise DataError(
                f"crowd {self.name!r} has only {self.counts.reliable} workers with at least "
                f"{MIN_ANNOTATIONS} annotations, too few for a pool of {size}",
                remedy="give a larger crowd, or draw smaller pools with crowd.pool(size=...)",
            )


def assemble_crowd(
    name: str,
    annotations: Iterable[Annotation],
    synthetic: bool = False,
    unjudged: UnjudgedCounts = NO_UNJUDGED,
) -> Crowd:
    """Put annotations into canonical order, whatever order they are given in."""
    given = list(annotations)
    tasks, workers = sort_ids(a.task for a in given), sort_ids(a.worker for a in given)
    of_task, of_worker = ({id: i for i, id in enumerate(ids)} for ids in (tasks, workers))
    cells = sorted((of_task[a.task], of_worker[a.worker], bool(a.correct)) for a in given)
    content = json.dumps([tasks, workers, cells], separators=(",", ":"))
    columns = np.array(cells, np.int64).reshape(-1, 3).T
    return Crowd(
        name=name,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        synthetic=synthetic,
        tasks=tasks,
        workers=workers,
        task=lock_array(columns[0].copy()),
        worker=lock_array(columns[1].copy()),
        correct=lock_array(columns[2] == 1),
        unjudged=unjudged,
    )


def describe_crowd(crowd: Crowd) -> str:
    reliable = crowd.reliable()
    accuracy, load = crowd.accuracy()[reliable], crowd.workload[reliable]
    rows = [(f"crowd {crowd.name}", "")]
    rows += [(noun, f"{n:,}") for noun, n in zip(CrowdCounts._fields, crowd.counts, strict=True)]
    if len(reliable):
        rows += [
            ("median workload of these", f"{np.median(load):.4g}"),
            ("largest workload", f"{load.max():,}"),
            ("mean accuracy of these", f"{accuracy.mean():.3f}"),
            ("never wrong", f"{(accuracy == 1).sum():,}"),
        ]
    left_out = {
        "annotations without a truth": crowd.unjudged.annotations,
        "their tasks": crowd.unjudged.tasks,
        "workers with no others": crowd.unjudged.workers,
        "truths nobody annotated": crowd.unjudged.unannotated,
    }
    rows += [(noun, f"{n:,}") for noun, n in left_out.items() if n]
    notes = ["synthetic: made up by bylot, not measured on people"] * crowd.synthetic
    if len(reliable) < PAPER_POOL_SIZE:
        notes.append(
            "too few reliable workers for `bylot reproduce`, which draws pools of "
            f"{PAPER_POOL_SIZE}"
        )
    return "\n".join([*format_table(rows), f"digest {crowd.digest}", *notes])


def make_synthetic_crowd(seed: int = 0) -> Crowd:
    """Make a synthetic crowd with the marginals of TREC's.

    677 workers, 270 of them with at least 5 annotations, 2,275 tasks, about 13,100 annotations.
    A reliable worker's load follows TREC's quantiles (5, 7, 13.5, 51, 967 at 0, 1/4, 1/2, 3/4, 1):
    one from each of 270 equal parts, its logarithm linear between them. A worker with n annotations
    is right with probability p ~ Beta(19 m, 19 (1 - m)), m = 0.78 - 0.036 log n: busy workers are
    less accurate, and about 7% of the reliable never err. Workers get the tasks that lack most of
    their crowd, those without anybody first, so that every task has one and some are more popular.
    """
    rng = make_generator(seed, SYNTHETIC_STREAM)
    share = (np.arange(RELIABLE_COUNT) + rng.random(RELIABLE_COUNT)) / RELIABLE_COUNT
    many = np.floor(np.exp(np.interp(share, LOAD_SHARES, np.log(LOAD_QUANTILES))))
    few = np.repeat(np.arange(1, 5), UNRELIABLE_COUNTS)
    load = np.concatenate([many.astype(np.int64), few])
    m = 0.78 - 0.036 * np.log(load)
    accuracy = rng.beta(19 * m, 19 * (1 - m))
    size: Floats = rng.permutation(np.repeat(np.arange(1.0, 11.0), TASK_CROWDING))
    taken = np.zeros(TASK_COUNT)
    chosen = [np.empty(0, np.int64)] * len(load)
    for i in rng.permutation(len(load)):
        full = (taken + rng.random(TASK_COUNT)) / size
        chosen[i] = np.argsort(np.where(taken == 0, full - TASK_COUNT, full))[: load[i]]
        taken[chosen[i]] += 1
    names = rng.permutation(WORKER_COUNT) + 1  # names carry no information
    annotations = (
        Annotation(str(task + 1), str(names[i]), right)
        for i, tasks in enumerate(chosen)
        for task, right in zip(tasks, rng.random(len(tasks)) < accuracy[i], strict=True)
    )
    return assemble_crowd(SYNTHETIC_NAME, annotations, synthetic=True)
