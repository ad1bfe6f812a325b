"""Costs that follow from the names of the experts, such as the share of a group.

Bounds on them are left to `limits`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from bylot.errors import ProblemError
from bylot.numerics.jit import Floats


@dataclass(frozen=True)
class DerivedCost:
    """A cost that follows from the names of the experts: the base of new kinds of limits.

    A subclass is a frozen dataclass with the (K,) costs `row`; `to_data` and `from_data` are for
    files. It names the key of its data: ``class Share(DerivedCost, key="share")``.
    """

    kinds: ClassVar[dict[str, type["DerivedCost"]]] = {}
    key: ClassVar[str]
    group: str

    def __init_subclass__(cls, *, key: str) -> None:
        cls.key, cls.kinds[key] = key, cls

    @property
    def name(self) -> str:
        """The name of the cost."""
        return self.group

    def row(self, experts: Sequence[str]) -> Floats:
        """Return the (K,) costs of the experts, all of them 0 or more."""
        raise NotImplementedError

    def to_data(self) -> dict[str, Any]:
        """Return the cost as JSON data, with lists for tuples."""
        data = {name: list(x) if isinstance(x, tuple) else x for name, x in vars(self).items()}
        return {self.key: data.pop("group"), **data}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` returned."""
        given = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        given |= {name: tuple(x) for name, x in given.items() if isinstance(x, list)}
        return cls(**{**given, "group": data[cls.key]})


@dataclass(frozen=True)
class Share(DerivedCost, key="share"):
    """The number of members of a group in the panel: a cost of 1 for members, 0 for others."""

    members: tuple[str, ...] = ()  # empty: those of the group of this name, in `groups`

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise ProblemError(
                "group of a share",
                got=self.group,
                expected="a non-empty name",
                remedy="write share('junior', ['ann', 'bob'])",
            )
        for name, times in Counter(self.members).most_common(1):
            if times > 1:
                raise ProblemError(
                    f"share {self.group!r} names {name!r} {times} times",
                    remedy="name each member once",
                )

    def to_data(self) -> dict[str, Any]:
        """Return the share as JSON data, without members if they are those of a group."""
        return super().to_data() if self.members else {self.key: self.group}

    def row(self, experts: Sequence[str]) -> Floats:
        """Return 1 for each member and 0 for the others."""
        members = set(self.members)
        return np.array([float(name in members) for name in experts])


def share(group: str, members: Iterable[str] | None = None) -> Share:
    """Count the members of a group, so that a limit can bound their number per request.

    Parameters
    ----------
    group : str
        The name of the group, and of the cost.
    members : iterable of str, optional
        The experts that belong to it; without them, those of the problem's `groups` of this name.

    Returns
    -------
    Share
        What `at_most` and `at_least` take in place of the name of a cost.

    Raises
    ------
    ProblemError
        If there are no members, or one is named twice.

    Examples
    --------
    >>> from bylot.problem import at_least
    >>> print(at_least(share("junior", ["ann", "bob"]), 0.3))  # three members in ten requests
    at_least('junior', 0.3)
    """
    if isinstance(members, str):
        raise ProblemError(
            f"members of share {group!r}",
            got=members,
            expected="a list of names",
            remedy=f"write share({group!r}, [{members!r}])",
        )
    if members is None:
        return Share(group)
    made = Share(group, tuple(members))
    if not made.members:
        raise ProblemError(
            f"share {group!r} has no members, so its average is always 0",
            remedy="name at least one expert, or leave the share out",
        )
    return made
