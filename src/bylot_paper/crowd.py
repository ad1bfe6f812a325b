"""A crowd: who answered which task, and whether they were right; where it comes from is left to
the readers.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot._text import format_table
from bylot.errors import DataError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.outcome_tables.text_lines import sort_ids
from bylot.problem.validation import lock_array

POOL_STREAM = 2 << 32  # of chance: apart from those of policies (below 1 << 32) and of environments


@dataclass(frozen=True, eq=False)
class WorkerPool:
    """Workers in the order of their ids; column i of everything belongs to workers[i]."""

    workers: tuple[str, ...]
    skills: Floats  # (N, K): accuracy in each group of tasks; overall accuracy where there is none
    workload: Floats  # (K,): annotations, as a share of the most in the pool
    expert: Floats  # (K,): 1 for the most accurate, else 0
    accuracy: Floats  # (K,): over all annotations
    imputed: int  # entries of skills without an annotation of their own


def draw_workers(seed: int, among: Ints, size: int) -> Ints:
    """So many of these without replacement, each set as likely as any other, in their order.

    Everybody gets a uniform of the seed's own; the smallest win.
    """
    rng = np.random.Generator(np.random.Philox(key=seed + (POOL_STREAM << 64)))
    winners = np.argsort(rng.random(len(among)), kind="stable")[:size]
    return among[np.sort(winners)]


def compute_accuracies(
    group: Ints, place: Ints, correct: Bools, spare: Floats, smoothing: int = 0
) -> tuple[Floats, int]:
    """The share of correct annotations in each cell (group, place), and how many cells had none.

    spare has the shape of the result, and stands in for cells without an annotation. With smoothing
    s > 0 a cell of n annotations, k of them correct, has (k + s m) / (n + s) instead, where m is
    the mean of its group without smoothing: s annotations by an average worker.
    """
    cell = group * spare.shape[1] + place
    count = np.bincount(cell, minlength=spare.size).reshape(spare.shape)
    right = np.bincount(cell, correct, spare.size).reshape(spare.shape)
    empty = count == 0
    share = np.where(empty, spare, right / np.maximum(count, 1))
    if smoothing:
        mean = share.mean(axis=1, keepdims=True)
        share = (right + smoothing * mean) / (count + smoothing)
    return share, int(empty.sum())


def flag_most_accurate(accuracy: Floats, experts: int) -> Floats:
    """1 for so many of the highest accuracies, else 0; of equals, those that come first.

    >>> flag_most_accurate(np.array([0.5, 0.9, 0.5, 0.1]), 2)
    array([1., 1., 0., 0.])
    """
    chosen = np.zeros(len(accuracy))
    chosen[np.argsort(-accuracy, kind="stable")[:experts]] = 1.0
    return chosen


MIN_ANNOTATIONS = 5  # annotations below which the paper does not trust an accuracy
PAPER_POOL_SIZE = 50  # workers in a pool of the paper


class CrowdCounts(NamedTuple):
    """The size of a crowd; reliable are the workers with at least 5 annotations."""

    workers: int
    tasks: int
    annotations: int
    reliable: int


class UnjudgedCounts(NamedTuple):
    """What the files hold beyond the joined data, as the inner join leaves it out."""

    annotations: int = 0  # of tasks without a truth
    tasks: int = 0  # annotated, but without a truth
    workers: int = 0  # none of whose tasks has a truth
    unannotated: int = 0  # tasks with a truth that nobody annotated


NO_UNJUDGED = UnjudgedCounts()


class Annotation(NamedTuple):
    """One answer that can be judged."""

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
        """Workers, tasks, annotations, reliable workers."""
        return CrowdCounts(
            len(self.workers), len(self.tasks), len(self.correct), len(self.reliable())
        )

    @property
    def workload(self) -> Ints:
        """How many annotations each worker made."""
        return np.bincount(self.worker, minlength=len(self.workers)).astype(np.int64)

    def accuracy(self) -> Floats:
        """The share of each worker's annotations that are correct."""
        right = np.bincount(self.worker, self.correct, len(self.workers))
        return np.asarray(right / self.workload, np.float64)

    def reliable(self, least: int = MIN_ANNOTATIONS) -> Ints:
        """Indices of the workers with at least so many annotations."""
        return np.flatnonzero(self.workload >= least).astype(np.int64)

    def pool(
        self,
        seed: int,
        size: int = PAPER_POOL_SIZE,
        dimensions: int = 3,
        experts: int = 10,
        smoothing: int = 0,
    ) -> WorkerPool:
        """The workers who compete under a seed, with their skills and costs (paper, section 6.1).

        The same workers are drawn for any number of dimensions. Group n of the tasks holds every
        dimensions-th of the sorted tasks of the whole crowd, beginning with the n-th. Smoothing is
        not the paper's: so many annotations by an average worker are added to those of each skill.
        """
        self._can_draw(seed, size, dimensions, experts, smoothing)
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

    def _can_draw(
        self, seed: int, size: int, dimensions: int, experts: int, smoothing: int
    ) -> None:
        """Are there such pools at all?"""
        if not 0 <= seed < 1 << 64:
            raise DataError(f"seed={seed} given; a pool is drawn by a seed from 0 to 2^64 - 1")
        if size < 1 or dimensions < 1 or not 0 <= experts <= size or smoothing < 0:
            raise DataError(
                f"a pool of size={size}, dimensions={dimensions}, experts={experts}, "
                f"smoothing={smoothing} given; wanted a size and dimensions of at least 1, from 0 "
                "to size experts, and a smoothing of 0 or more"
            )
        if self.counts.reliable < size:
            raise DataError(
                f"crowd {self.name!r}: a pool of {size} workers was asked for, but only "
                f"{self.counts.reliable} have at least {MIN_ANNOTATIONS} annotations with a truth; "
                "give a larger crowd, or draw smaller pools (crowd.pool(size=...) in Python)"
            )


def assemble_crowd(
    name: str,
    annotations: Iterable[Annotation],
    synthetic: bool = False,
    unjudged: UnjudgedCounts = NO_UNJUDGED,
) -> Crowd:
    """Put annotations into canonical order, in which their order of arrival leaves no trace."""
    given = list(annotations)
    tasks, workers = sort_ids(a.task for a in given), sort_ids(a.worker for a in given)
    of_task = {task: i for i, task in enumerate(tasks)}
    of_worker = {worker: i for i, worker in enumerate(workers)}
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
    """What there is to know about a crowd before it is used, for people."""
    reliable = crowd.reliable()
    accuracy, load = crowd.accuracy()[reliable], crowd.workload[reliable]
    rows = [(f"crowd {crowd.name}", "")]
    rows += [(noun, f"{n:,}") for noun, n in zip(CrowdCounts._fields, crowd.counts, strict=True)]
    if len(reliable):
        rows += [("median workload of these", f"{np.median(load):.4g}")]
        rows += [("largest workload", f"{load.max():,}")]
        rows += [("mean accuracy of these", f"{accuracy.mean():.3f}")]
        rows += [("never wrong", f"{(accuracy == 1).sum():,}")]
    beyond = crowd.unjudged
    names = (
        "annotations without a truth",
        "their tasks",
        "workers with no others",
        "truths nobody annotated",
    )
    rows += [(noun, f"{n:,}") for noun, n in zip(names, beyond, strict=True) if n]
    made = ["synthetic: made up by bylot, not measured on people"] * crowd.synthetic
    if len(reliable) < PAPER_POOL_SIZE:
        made.append(
            f"too few reliable workers for `bylot reproduce`, which draws pools of {PAPER_POOL_SIZE}"
        )
    return "\n".join([*format_table(rows), f"digest {crowd.digest}", *made])
