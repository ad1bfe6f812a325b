"""A crowd: who answered which task, and whether they were right; where it comes from is left to
the readers.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.data.pool import Pool, accuracies, draw_lots, most_accurate
from bylot.errors import DataError
from bylot.kernels.compile import Bools, Floats, Ints
from bylot.problem.reading import locked
from bylot.text import table

LEAST = 5  # annotations below which the paper does not trust an accuracy
SIZE = 50  # workers in a pool of the paper
NUMBER = re.compile("-?[0-9]{1,18}", re.ASCII)


class Counts(NamedTuple):
    """The size of a crowd; reliable are the workers with at least 5 annotations."""

    workers: int
    tasks: int
    annotations: int
    reliable: int


class Unjudged(NamedTuple):
    """What the files hold beyond the joined data, as the inner join leaves it out."""

    annotations: int = 0  # of tasks without a truth
    tasks: int = 0  # annotated, but without a truth
    workers: int = 0  # none of whose tasks has a truth
    unannotated: int = 0  # tasks with a truth that nobody annotated


NOTHING = Unjudged()


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
    unjudged: Unjudged = NOTHING

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Crowd) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def counts(self) -> Counts:
        """Workers, tasks, annotations, reliable workers."""
        return Counts(len(self.workers), len(self.tasks), len(self.correct), len(self.reliable()))

    @property
    def workload(self) -> Ints:
        """How many annotations each worker made."""
        return np.bincount(self.worker, minlength=len(self.workers)).astype(np.int64)

    def accuracy(self) -> Floats:
        """The share of each worker's annotations that are correct."""
        right = np.bincount(self.worker, self.correct, len(self.workers))
        return np.asarray(right / self.workload, np.float64)

    def reliable(self, least: int = LEAST) -> Ints:
        """Indices of the workers with at least so many annotations."""
        return np.flatnonzero(self.workload >= least).astype(np.int64)

    def pool(
        self,
        seed: int,
        size: int = SIZE,
        dimensions: int = 3,
        experts: int = 10,
        smoothing: int = 0,
    ) -> Pool:
        """The workers who compete under a seed, with their skills and costs (paper, section 6.1).

        The same workers are drawn for any number of dimensions. Group n of the tasks holds every
        dimensions-th of the sorted tasks of the whole crowd, beginning with the n-th. Smoothing is
        not the paper's: so many annotations by an average worker are added to those of each skill.
        """
        self._can_draw(seed, size, dimensions, experts, smoothing)
        chosen = draw_lots(seed, self.reliable(), size)
        place = np.full(len(self.workers), -1)
        place[chosen] = np.arange(size)
        inside = place[self.worker] >= 0
        accuracy, load = self.accuracy()[chosen], self.workload[chosen]
        skills, imputed = accuracies(
            self.task[inside] % dimensions,
            place[self.worker[inside]],
            self.correct[inside],
            np.broadcast_to(accuracy, (dimensions, size)),
            smoothing,
        )
        return Pool(
            workers=tuple(self.workers[i] for i in chosen),
            skills=locked(skills),
            workload=locked(load / load.max()),
            expert=locked(most_accurate(accuracy, experts)),
            accuracy=locked(accuracy),
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
                f"{self.counts.reliable} have at least {LEAST} annotations with a truth; "
                "give a larger crowd, or draw smaller pools (crowd.pool(size=...) in Python)"
            )


def assemble(
    name: str,
    annotations: Iterable[Annotation],
    synthetic: bool = False,
    unjudged: Unjudged = NOTHING,
) -> Crowd:
    """Put annotations into canonical order, in which their order of arrival leaves no trace."""
    given = list(annotations)
    tasks, workers = ordered(a.task for a in given), ordered(a.worker for a in given)
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
        task=locked(columns[0].copy()),
        worker=locked(columns[1].copy()),
        correct=locked(columns[2] == 1),
        unjudged=unjudged,
    )


def ordered(ids: Iterable[str]) -> tuple[str, ...]:
    """Different ids in their order: that of numbers if all are whole numbers, else of text.

    >>> ordered(["10", "9", "10"]), ordered(["10", "9", "a"])
    (('9', '10'), ('10', '9', 'a'))
    """
    different = set(ids)
    if all(NUMBER.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))  # "7", "07": two
    return tuple(sorted(different))


def describe(crowd: Crowd) -> str:
    """What there is to know about a crowd before it is used, for people."""
    reliable = crowd.reliable()
    accuracy, load = crowd.accuracy()[reliable], crowd.workload[reliable]
    rows = [(f"crowd {crowd.name}", "")]
    rows += [(noun, f"{n:,}") for noun, n in zip(Counts._fields, crowd.counts, strict=True)]
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
    if len(reliable) < SIZE:
        made.append(f"too few reliable workers for `bylot reproduce`, which draws pools of {SIZE}")
    return "\n".join([*table(rows), f"digest {crowd.digest}", *made])
