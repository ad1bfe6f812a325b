"""Scenarios of the algorithm selection library (ASlib): which algorithm solved which instance.

A scenario is a folder, as published at https://github.com/coseal/aslib_data: `description.txt` and
`algorithm_runs.arff` are read. An algorithm is an expert, an instance is a question, and the
outcome is 1 if the algorithm solved it within the cut-off. Nothing is bundled.

An ARFF file is a header of attributes, then comma-separated data, as Weka writes them too.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot.errors import DataError
from bylot.outcome_tables.outcomes import OutcomeTable
from bylot.outcome_tables.sheets import (
    data_error,
    parse_decimal,
    quote_field,
    read_text,
    shorten,
    sort_ids,
)
from bylot.problem.validation import lock_array, suggest_known_name

RUNS_FILE = "algorithm_runs.arff"
DESCRIPTION_FILE = "description.txt"
RUN_STATES = ("ok", "timeout", "memout", "not_applicable", "crash", "other")
RUN_KEY = ("instance_id", "repetition", "algorithm")

ATTRIBUTE = re.compile(
    r"@attribute\s+(?:'([^']+)'|\"([^\"]+)\"|(\S+))\s+(\{.*\}|\S+)\s*$", re.IGNORECASE
)
FIELD = re.compile(
    r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"\s][^,]*?|))\s*(?:,|$)"""
)
MISSING = "?"
SPLIT_REMEDY = "separate fields by commas, and put quotes around a field that has a comma"


class ArffTable(NamedTuple):
    """The rows of an ARFF file; None where a value is missing."""

    path: Path
    attributes: tuple[str, ...]
    rows: list[list[str | None]]
    lines: list[int]  # the line of each row, from 1

    def place(self, attribute: str) -> int:
        """The position of an attribute."""
        if attribute not in self.attributes:
            raise data_error(
                self.path,
                f"no attribute {quote_field(attribute)}",
                suggest_known_name(attribute, self.attributes, "attributes"),
            )
        return self.attributes.index(attribute)

    def texts(self, attribute: str) -> list[str]:
        """The value of an attribute in every row; none is missing."""
        place, found = self.place(attribute), []
        for row, line in zip(self.rows, self.lines, strict=True):
            value = row[place]
            if not value:
                raise data_error(self.path, f"{attribute} is missing", "fill it in", line)
            found.append(value)
        return found

    def numbers(self, attribute: str) -> Iterator[float]:
        """The value of a numeric attribute in every row; NaN if it is missing."""
        place = self.place(attribute)
        for row, line in zip(self.rows, self.lines, strict=True):
            text = row[place]
            value = math.nan if text is None else parse_decimal(text)
            if value is None:
                raise DataError(
                    attribute,
                    got=shorten(str(text)),
                    expected="a number, or ? if missing",
                    path=self.path,
                    line=line,
                )
            yield value


def read_arff(path: Path) -> ArffTable:
    """Read an ARFF file; names of attributes are in lower case, sparse rows are refused."""
    attributes: list[str] = []
    rows: list[list[str | None]] = []
    lines: list[int] = []
    in_data = False
    for number, text in enumerate(read_text(path).splitlines(), 1):
        line = text.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            rows.append(split_arff_row(path, number, line, len(attributes)))
            lines.append(number)
        elif line.lower().startswith("@data"):
            in_data = True
        elif line.lower().startswith("@attribute"):
            attributes.append(parse_attribute(path, number, line, attributes))
        elif not line.lower().startswith("@relation"):
            raise data_error(
                path,
                f"{quote_field(line)} is no header of an ARFF file",
                "begin with @RELATION, then one @ATTRIBUTE NAME TYPE a line, then @DATA",
                number,
            )
    if not in_data:
        raise data_error(path, "no @DATA", "add it after the attributes, and the rows after it")
    if not rows:
        raise data_error(path, "no rows after @DATA", "add at least one")
    return ArffTable(path, tuple(attributes), rows, lines)


def parse_attribute(path: Path, number: int, line: str, known: list[str]) -> str:
    """The name of an attribute, of which the file has one only."""
    found = ATTRIBUTE.match(line)
    if found is None:
        raise data_error(
            path,
            f"{quote_field(line)} is no attribute",
            "write @ATTRIBUTE NAME TYPE, with quotes around a name that has spaces",
            number,
        )
    name = next(part for part in found.groups()[:3] if part is not None).lower()
    if name in known:
        raise data_error(
            path, f"a second attribute {quote_field(name)}", "rename or remove one of them", number
        )
    return name


def split_arff_row(path: Path, number: int, line: str, count: int) -> list[str | None]:
    r"""The fields of a row; quotes are removed, and an unquoted ? is a missing value.

    >>> split_arff_row(Path("a.arff"), 9, r"a, 'it\'s, b', ?, '?', o'neil", 5)
    ['a', "it's, b", None, '?', "o'neil"]
    """
    if line.startswith("{"):
        raise data_error(path, "a sparse row", "write all fields of it", number)
    fields: list[str | None] = []
    if "'" not in line and '"' not in line:
        fields = [None if part.strip() == MISSING else part.strip() for part in line.split(",")]
    else:
        at = 0
        while at <= len(line):
            part = FIELD.match(line, at)
            if part is None:
                raise data_error(path, "quotes do not match", SPLIT_REMEDY, number)
            single, double, bare = part.groups()
            quoted = single if single is not None else double
            if quoted is not None:
                fields.append(re.sub(r"\\(.)", r"\1", quoted))
            else:
                fields.append(None if bare == MISSING else bare)
            if not part.group().endswith(","):
                break
            at = part.end()
    if len(fields) != count:
        raise data_error(
            path, f"{len(fields)} fields, and the file has {count} attributes", SPLIT_REMEDY, number
        )
    return fields


@dataclass(frozen=True, eq=False)
class AslibScenario:
    """A scenario; rows are instances, repeated ones several times."""

    name: str
    cutoff: float  # seconds; infinite if the scenario states none
    outcomes: OutcomeTable  # 1: solved within the cut-off; NaN: no run


def find_aslib_folders(folder: str | PathLike[str]) -> list[Path]:
    """A folder that is a scenario, or the scenarios in it."""
    root = Path(folder)
    found = (
        [root]
        if (root / RUNS_FILE).is_file()
        else sorted(path.parent for path in root.glob(f"*/{RUNS_FILE}"))
    )
    if not found:
        raise data_error(
            root,
            "no scenario of the algorithm selection library",
            f"give the folder of a scenario, or one with such folders: they have {RUNS_FILE}",
        )
    return found


def read_aslib(folder: str | PathLike[str]) -> AslibScenario:
    """Read a scenario that measures run times."""
    root = Path(folder)
    about = read_description(root / DESCRIPTION_FILE)
    kind = about.get("performance_type", ["runtime"])
    if kind[:1] != ["runtime"]:
        raise data_error(
            root / DESCRIPTION_FILE,
            f"the scenario measures {', '.join(kind)}, and only run times can be read",
            "give a scenario that measures run times",
        )
    cutoff = parse_cutoff(root / DESCRIPTION_FILE, about)
    runs = read_arff(root / RUNS_FILE)
    measure = next(iter(about.get("performance_measures", [])), "runtime").lower()
    measure = measure if measure in runs.attributes else "runtime"
    keys = list_run_keys(runs)
    experts = tuple(sorted({algorithm for _, _, algorithm in keys}))
    repeated = len({(i, r) for i, r, _ in keys}) > len({i for i, _, _ in keys})
    names = {(i, r): f"{i}, repetition {r}" if repeated else i for i, r, _ in keys}
    questions = sort_ids(names.values())
    row = {name: n for n, name in enumerate(questions)}
    column = {name: n for n, name in enumerate(experts)}
    solved = np.full((len(questions), len(experts)), np.nan)
    states, times = runs.texts("runstatus"), runs.numbers(measure)
    for n, ((i, r, algorithm), state, time) in enumerate(zip(keys, states, times, strict=True)):
        solved[row[names[i, r]], column[algorithm]] = judge_run(runs, n, state, time, cutoff)
    none = lock_array(np.zeros(len(questions), np.int64))
    outcomes = OutcomeTable(experts, questions, (), none, (), none, lock_array(solved), ())
    name = next(iter(about.get("scenario_id", [])), root.resolve().name)
    return AslibScenario(name, cutoff, outcomes)


def read_description(path: Path) -> dict[str, list[str]]:
    """The values of each key of the outermost level: one after the colon, or a list below it."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for line in read_text(path).splitlines():
        item = line.strip()
        if line[:1].isalpha() and ":" in line:
            key, _, value = item.partition(":")
            values = found.setdefault(key.strip(), [])
            values += [value.strip(" \"'")] if value.strip() else []
        elif item.startswith("- "):
            values.append(item[2:].strip(" \"'"))
    return found


def parse_cutoff(path: Path, about: dict[str, list[str]]) -> float:
    """The cut-off of a run in seconds; infinite if there is none."""
    text = next(iter(about.get("algorithm_cutoff_time", [])), MISSING)
    value = math.inf if text == MISSING else parse_decimal(text)
    if value is None or value <= 0:
        raise DataError(
            "algorithm_cutoff_time",
            got=text,
            expected="a positive number of seconds, or ? if there is none",
            path=path,
        )
    return value


def list_run_keys(runs: ArffTable) -> list[tuple[str, str, str]]:
    """The instance, repetition and algorithm of every row, of which no two are equal."""
    keys = list(zip(*(runs.texts(name) for name in RUN_KEY), strict=True))
    seen: dict[tuple[str, ...], int] = {}
    for key, line in zip(keys, runs.lines, strict=True):
        before = seen.setdefault(key, line)
        if before != line:
            i, r, algorithm = map(quote_field, key)
            raise data_error(
                runs.path,
                f"algorithm {algorithm} on instance {i}, repetition {r}, as in line {before}",
                "keep one of the two runs",
                line,
            )
    return keys


def judge_run(runs: ArffTable, row: int, state: str, seconds: float, cutoff: float) -> float:
    """1 if a run has solved its instance within the cut-off, else 0."""
    line, word = runs.lines[row], state.lower()
    if word not in RUN_STATES:
        raise DataError(
            "runstatus",
            got=state,
            expected=f"one of {', '.join(RUN_STATES)}",
            path=runs.path,
            line=line,
        )
    if word == "ok" and math.isnan(seconds):
        raise data_error(
            runs.path,
            "a run that is ok has no run time",
            "give its run time, or another runstatus",
            line,
        )
    return float(word == "ok" and seconds <= cutoff)
