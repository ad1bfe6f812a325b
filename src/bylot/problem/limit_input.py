"""What callers write in a limit: what its bound is per, which contexts it is on, and numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Literal
from unicodedata import normalize

from bylot._windows import WindowName
from bylot.errors import ProblemError

Per = WindowName | Literal["request", "draw"]
"""What a bound is per, as callers write it."""

Where = Mapping[str, Sequence[str]] | None
"""Which requests a limit counts, as callers write it: {"context": ["icu", "er"]}."""


def split_per(per: Per | None) -> tuple[WindowName | None, bool]:
    """Return the window of a bound, None if it has none, and whether it is per draw."""
    if per is None or per == "request":
        return None, False
    return (None, True) if per == "draw" else (per, False)


def check_where(given: object, name: str) -> tuple[str, ...]:
    """The contexts of a limit on a cost of this name: a tuple of labels, or {"context": labels}.

    >>> check_where({"context": ["icu", "er"]}, "usd"), check_where((), "usd")
    (('icu', 'er'), ())
    """
    if given is None:
        return ()
    what, form = f"where of the limit on {name!r}", "{'context': ['icu']}"
    if isinstance(given, Mapping):
        if set(given) != {"context"}:
            raise ProblemError(what, got=dict(given), expected=form)
        given = given["context"]
        given = [given] if isinstance(given, str) else given
        if not given:
            raise ProblemError(what, got=given, expected="at least one context")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ProblemError(what, got=given, expected=form)
    labels = tuple(given)
    if not all(isinstance(one, str) and one for one in labels):
        raise ProblemError(what, got=list(labels), expected="names of contexts")
    labels = tuple(normalize("NFC", one) for one in labels)
    if len(set(labels)) < len(labels):
        raise ProblemError(f"{what} names a context twice", remedy="name each once")
    return labels


def float_from_real(given: object) -> float | None:
    """Convert a real number to a float; None for everything else, bools included.

    >>> float_from_real(2), float_from_real("2"), float_from_real(True)
    (2.0, None, None)
    """
    if isinstance(given, bool) or not isinstance(given, Real):
        return None
    try:
        return float(given) + 0.0  # -0.0 becomes 0.0
    except OverflowError:  # an integer of over 300 digits
        return math.inf
