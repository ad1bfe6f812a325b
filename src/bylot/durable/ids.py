"""Names of routers, and the ids of their decisions: NAME.NUMBER.SEQ."""

import re
from typing import NamedTuple

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
ID = re.compile(rf"({NAME.pattern})\.(0|[1-9][0-9]{{0,17}})\.([1-9][0-9]{{0,17}})", re.ASCII)


class Id(NamedTuple):
    """Which decision: of which router, by name and by number, and its line in that one's log.

    A name can be used again for another router, a number never.
    """

    name: str
    number: int
    seq: int

    def __str__(self) -> str:
        return f"{self.name}.{self.number}.{self.seq}"


def read_id(text: str) -> Id | None:
    """The id that this is, None if no decision can have it.

    >>> read_id("triage.7.12"), read_id("triage.7.012"), read_id("d12")
    (Id(name='triage', number=7, seq=12), None, None)
    """
    found = ID.fullmatch(text)
    return Id(found[1], int(found[2]), int(found[3])) if found else None


def is_name(text: str) -> bool:
    """Can a router be called so?

    >>> is_name("triage-2"), is_name("Triage"), is_name("")
    (True, False, False)
    """
    return NAME.fullmatch(text) is not None
