"""What stays when one problem takes the place of another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.problem import Problem


def has_same_pool(old: Problem, new: Problem) -> bool:
    """Are panels drawn from the same experts, as many at a time?"""
    return old.experts == new.experts and old.draws == new.draws


def match_positions(old: Sequence[Any], new: Sequence[Any]) -> tuple[Ints, Ints]:
    """The positions of what both have: in the first, in the second."""
    place = {one: i for i, one in enumerate(old)}
    pairs = [(place[one], i) for i, one in enumerate(new) if one in place]
    here, there = np.array(pairs, np.int64).reshape(-1, 2).T
    return here, there


@dataclass(frozen=True)
class ProblemChange:
    """What stays under another problem: experts by name, limits by cost and side."""

    old: Problem
    new: Problem
    used: Bools  # contexts with visits

    @cached_property
    def experts(self) -> tuple[Ints, Ints]:
        """The positions of the experts in both problems."""
        return match_positions(self.old.experts, self.new.experts)

    @cached_property
    def limits(self) -> tuple[Ints, Ints]:
        """The positions of limits on the same side of the same cost, whatever their bounds."""
        old, new = ([limit.key for limit in one.limits] for one in (self.old, self.new))
        return match_positions(old, new)

    @property
    def same_limits(self) -> Bools:
        """Which of the `limits` have the same bound as before, in the same windows."""
        pairs = (
            (self.old.limits[a], self.new.limits[b]) for a, b in zip(*self.limits, strict=True)
        )
        same = [old.bound == new.bound and old.calendar == new.calendar for old, new in pairs]
        return np.array(same, np.bool_)

    def copy_by_limit(self, old: Floats, new: Floats, growth: Any = 1.0) -> None:
        """Copy a number per limit; a policy that ignores limits has none."""
        if old.size and new.size:
            here, there = self.limits
            new[there] = old[here] * np.broadcast_to(growth, new.shape)[there]

    def growth(self, old: Floats, new: Floats) -> Floats:
        """By how much the unit of each limit has grown; 1 for a new one."""
        factor, (here, there) = np.ones(new.size), self.limits
        factor[there] = new[there] / old[here]
        return factor

    def copy_state(self, old: Any, new: Any, skip: Sequence[str] = ()) -> None:
        """Copy (X, K) by expert in used contexts, parts by their `migrate`, others as they are."""
        here, there = self.experts
        for name, was, now in zip(old._fields, old, new, strict=True):
            if name in skip:
                continue
            if hasattr(was, "migrate"):
                was.migrate(now, self)
            elif isinstance(was, tuple):
                self.copy_state(was, now, skip)
            elif was.ndim == 2:
                now[np.ix_(self.used, there)] = was[np.ix_(self.used, here)]
            else:
                now[:] = was
