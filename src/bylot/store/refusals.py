"""What both stores say of a database that is not theirs, not of this version, or no longer ours."""

from collections.abc import Iterable, Sequence

from bylot.errors import Fenced, KeyReused, StoreDamaged, StoreError, StoreUnknown

VERSION = 1
"""Of the tables; a store of an older one would be brought to this one when it is opened."""


def known(place: str, rows: Sequence[tuple[int]]) -> None:
    """Refuse tables of a version that this bylot cannot read."""
    if len(rows) != 1:
        raise StoreDamaged(
            f"{place}: its table bylot_meta has {len(rows)} rows instead of one; "
            "restore it from a copy"
        )
    if rows[0][0] != VERSION:
        raise StoreUnknown(
            f"{place} is a store of version {rows[0][0]}, and this bylot knows version {VERSION} "
            "only; use the bylot that wrote it, or a newer one"
        )


def alien(place: str) -> StoreError:
    """For a database that somebody else uses."""
    return StoreUnknown(
        f"{place} has no table bylot_meta: it is no store, or belongs to another program; "
        "give an empty one, or a new name"
    )


def fenced(place: str, routers: Iterable[int]) -> Fenced:
    """For lines that do not continue a log, or of a router that another owner has."""
    lost = tuple(sorted(routers))
    return Fenced(
        f"{place}: the log of router {', '.join(map(str, lost))} was deleted, is another owner's, "
        "or goes on otherwise; nothing was written: read it again before writing",
        lost,
    )


def twice(place: str, error: Exception) -> KeyReused:
    """For a batch that is wrong in itself, or has a key that a decision had before."""
    return KeyReused(
        f"{place}: two lines under one number, or two decisions under one key ({error}); "
        "nothing was written"
    )


def unkept(error: Exception) -> StoreError:
    """For texts and numbers that the database has no way to keep."""
    said = str(error).splitlines()[0]
    return StoreError(
        f"a text or number that cannot be kept ({said}); give short texts without NUL "
        "and half characters, and numbers below 2**63"
    )
