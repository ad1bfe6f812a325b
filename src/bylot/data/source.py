"""Where a crowd comes from: a word or a folder that a person gave, or else what can be had."""

import os
from os import PathLike
from pathlib import Path

from bylot.data.annotations import read
from bylot.data.crowd import Crowd
from bylot.data.fetch import cached_trec, fetch_trec
from bylot.data.lines import fault
from bylot.data.madeup import synthetic
from bylot.data.trec import CROWD, TRUTH, read_trec
from bylot.errors import DataError, DataUnreachable
from bylot.text import say

SYNTHETIC = "synthetic"


def find(where: str | PathLike[str] | None = None, offline: bool = False) -> Crowd:
    """The crowd to play with: "synthetic", or the TREC crowd of a folder, as `where` says.

    None: what $BYLOT_DATA says; else TREC from the user's cache, or downloaded into it; and if the
    network does not give it, or is not to be asked, the synthetic crowd, after a word about it on
    standard error.
    """
    told = where if where is not None else os.environ.get("BYLOT_DATA")
    if told:
        return given(str(told))
    if where is not None:
        raise DataError(f"data={where!r} given; wanted a folder or the word {SYNTHETIC!r}")
    if offline:
        return without_network()
    try:
        folder = fetch_trec()
    except DataUnreachable as error:
        say(f"{error}\nno TREC data: a synthetic crowd is used instead, and results will say so")
        return synthetic()
    return read_trec(folder)


def without_network() -> Crowd:
    """TREC if it was fetched before, else the synthetic crowd."""
    folder = cached_trec()
    if all((folder / name).is_file() for name in (CROWD, TRUTH)):
        return read_trec(folder)
    say("no TREC data here (`bylot data fetch trec` gets it): a synthetic crowd is used instead")
    return synthetic()


def given(where: str) -> Crowd:
    """What a person asked for, exactly, or an error."""
    if where == SYNTHETIC:
        return synthetic()
    folder = Path(where)
    if not folder.is_dir():
        remedy = f"give a folder with {CROWD} and {TRUTH}, or the word {SYNTHETIC!r}"
        raise fault(folder, "is not a folder", remedy)
    return read_trec(folder)


def from_files(crowd_file: str | PathLike[str], truth_file: str | PathLike[str]) -> Crowd:
    """A user's own crowd, called after its first file; the form of the files is in `read`."""
    return read(crowd_file, truth_file, name=Path(crowd_file).stem)
