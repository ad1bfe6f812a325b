"""Source: the text of a problem file, before anybody knows what it says."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bylot.errors import ProblemFileError
from bylot.files.node import DEEPEST, Place, fault

LARGEST = 1_000_000  # bytes; ten thousand experts take half of it
ODD = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters, and signs that only some programs take for the end of a line."""


@dataclass(frozen=True)
class Source:
    """A file and its text, with every end of line as one sign."""

    path: Path
    text: str

    @cached_property
    def _ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]

    def place(self, offset: int) -> Place:
        """The line of a place in the text."""
        return Place(self.path, 1 + bisect_right(self._ends, offset - 1))

    def too_deep(self, offset: int) -> ProblemFileError:
        """The error for brackets within brackets without end."""
        what = f"more than {DEEPEST} lists or mappings are inside one another here"
        return fault(self.place(offset), what, "write it flatter; a problem needs four")


def opened(path: Path) -> Source:
    """The text of a file: not too long, not empty, in UTF-8, without control characters."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (FileNotFoundError, ValueError):  # ValueError: a name that no file can have
        raise fault(path, "no such file", "give the path of a file that exists") from None
    except IsADirectoryError:
        raise fault(path, "is a folder", "give the file itself") from None
    except OSError as error:
        raise fault(path, f"cannot be read ({error.strerror})", "make it readable") from None
    if len(content) > LARGEST:
        remedy = "put the experts in a CSV file, and name that under experts"
        raise fault(path, f"has more than {LARGEST:,} bytes", remedy)
    return Source(path, decoded(path, content))


def decoded(path: Path, content: bytes) -> str:
    """Bytes as text, if they are text that says something."""
    remedy = "save it as plain text in UTF-8"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise fault(Place(path, line), "is not text in UTF-8", remedy) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    odd = ODD.search(text)
    if odd:
        place = Source(path, text).place(odd.start())
        raise fault(place, f"holds the control character U+{ord(odd[0]):04X}", "remove it")
    if not text.strip():
        raise fault(path, "is empty", "start from what `bylot problem new` prints")
    return text
