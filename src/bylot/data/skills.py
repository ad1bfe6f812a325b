"""Reading skills: how good every expert is on average in every dimension."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from bylot.data.lines import fault, quoted
from bylot.data.match import matched
from bylot.data.sheet import number, sheet
from bylot.kernels.compile import Floats
from bylot.problem.reading import locked


@dataclass(frozen=True, eq=False)
class SkillTable:
    """Mean values, dimension by expert; `environments.Noisy(table)` is noise around them."""

    experts: tuple[str, ...]
    dimensions: tuple[str, ...]
    table: Floats  # (N, K), in [0, 1]
    unused: tuple[str, ...]  # columns of the file that belong to no expert


def read_skills(path: str | PathLike[str], experts: Sequence[str]) -> SkillTable:
    """A table from a file with a line for each dimension and a column for each of the experts.

    Line 1 names the columns; the first field of every other line is the name of a dimension.
    """
    read = sheet(Path(path))
    match = matched(read.path, read.columns[1:], experts)
    table = np.empty((len(read.fields), len(experts)))
    for row, fields in enumerate(read.fields):
        for i, place in enumerate(match.places):
            value = number(fields[1 + place])
            if value is None or not 0 <= value <= 1:
                what = f"{quoted(fields[1 + place])} of expert {quoted(experts[i])} is not a skill"
                remedy = "write the mean value of an answer, from 0 to 1"
                raise fault(read.path, what, remedy, read.line(row))
            table[row, i] = value + 0.0  # no -0.0
    return SkillTable(tuple(experts), tuple(read.names), locked(table), match.unused)
