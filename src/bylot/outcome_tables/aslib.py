"""Scenarios of the algorithm selection library (ASlib): which algorithm solved which instance.

A scenario is a folder, as published at https://github.com/coseal/aslib_data: `description.txt` and
`algorithm_runs.arff` are read. An algorithm is an expert, an instance is a question, and the
outcome is 1 if the algorithm solved it within the cut-off. Nothing is bundled.
"""

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from bylot.errors import DataError
from bylot.outcome_tables.arff import MISSING, ArffTable, read_arff
from bylot.outcome_tables.outcomes import OutcomeTable
from bylot.outcome_tables.sheets import data_error, parse_decimal, quote_field, read_text, sort_ids
from bylot.problem.validation import lock_array

RUNS_FILE = "algorithm_runs.arff"
DESCRIPTION_FILE = "description.txt"
RUN_STATES = ("ok", "timeout", "memout", "not_applicable", "crash", "other")
RUN_KEY = ("instance_id", "repetition", "algorithm")


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
