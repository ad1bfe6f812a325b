"""`bylot reproduce`, `run_plot`, `run_report`: the paper's experiments and what is made of them."""

import argparse
import os
from pathlib import Path
from typing import Any

from bylot.cli.data import add_crowd_options, read_crowd_options
from bylot.cli.numbers import parse_positive

PAPER_FOLDER = Path("out/paper")
RESULT_FOLDERS = {
    **dict.fromkeys(("sweep", "crowd", "paper"), PAPER_FOLDER),
    "beyond": Path("out/beyond"),
    "all": Path("out/all"),
    "default": Path("out/default"),
}
"""Where results go unless a folder is given: the paper's two experiments make one report."""


def add(verbs: Any) -> None:
    """The verbs and their options."""
    verb = verbs.add_parser(
        "reproduce",
        help="play the paper's experiments: records, figures, a verdict on every claim",
        description="Play section 6 of the paper, `sweep` (Figure 1) and `crowd` (Figures 2 and "
        "3), what is past it, `beyond`, or what the default policy is chosen by, `default`. What "
        "is finished is kept: the same command goes on where it was stopped.",
    )
    verb.add_argument(
        "what",
        nargs="?",
        choices=list(RESULT_FOLDERS),
        default="all",
        help="sweep: regret of OMD at N = 3 and 5 under three levels of limits; crowd: eight "
        "policies, four levels, two environments; paper: these two; beyond: our own policies "
        "beside the paper's, at a harder level too, in periods, and without some of their parts; "
        "all: the paper's and beyond (default); default: all policies in all worlds, and the rule "
        "that chooses the default policy from their table",
    )
    add_crowd_options(verb)
    verb.add_argument(
        "--seeds",
        type=parse_positive,
        metavar="COUNT",
        help="how many seeds, 0 to COUNT - 1 (default: the paper's, 5 of sweep and 20 of crowd; "
        "20 of beyond, 5 of its periods, 4 of its settings; of default 20 on the crowd and 6 "
        "elsewhere); verdicts need 3 or more",
    )
    verb.add_argument(
        "--rounds",
        type=parse_positive,
        default=10_000,
        help="rounds of a run, at least 10 (default 10000)",
    )
    verb.add_argument(
        "--variants",
        action="store_true",
        help="also five other readings of the paper: cbwk-instant, ts-bwk-instant, omd-sum, "
        "omd-frozen, omd-plain",
    )
    verb.add_argument(
        "--settings",
        action="store_true",
        help="also a grid of settings of our own policies, to report what tuning would gain",
    )
    verb.add_argument(
        "--hospital",
        type=Path,
        metavar="DIR",
        help="for default: the folder with outcomes.csv, questions.csv and experts.csv of a panel "
        "of language models (default: $BYLOT_HOSPITAL, or without it)",
    )
    verb.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only cells whose id matches, as file names do; may be repeated. An id is "
        "crowd/tight/regime/omd/N=3/seed=07, a pattern '*/tight/*/omd/*'",
    )
    verb.add_argument(
        "--jobs",
        type=parse_positive,
        default=os.cpu_count() or 1,
        help="how many cores to use (default: all)",
    )
    verb.add_argument(
        "--engine",
        choices=["threads", "ray"],
        default="threads",
        help="threads of this process, or a Ray cluster of many machines (default threads)",
    )
    verb.add_argument(
        "--address", help="host:port of a running Ray cluster (default: one made here)"
    )
    verb.add_argument(
        "--out",
        type=Path,
        help=f"folder for results (default: {PAPER_FOLDER} of sweep, crowd and paper, "
        f"{RESULT_FOLDERS['beyond']}, {RESULT_FOLDERS['default']}, or {RESULT_FOLDERS['all']})",
    )
    verb.add_argument(
        "--fresh", action="store_true", help="forget the records that the folder holds"
    )
    verb.set_defaults(run=run)

    for name, line, action in [
        ("plot", "make the figures anew from a folder's records", run_plot),
        (
            "report",
            "make figures, report, claims and summary anew from a folder's records",
            run_report,
        ),
    ]:
        again = verbs.add_parser(name, help=line, description=line)
        again.add_argument(
            "folder", type=Path, nargs="?", default=PAPER_FOLDER, help=f"(default {PAPER_FOLDER})"
        )
        again.set_defaults(run=action)


def run(given: argparse.Namespace) -> int:
    """Find the data, then hand over."""
    from bylot.errors import BylotError
    from bylot_paper.reproduce import EXPERIMENT_SETS, ReproduceRequest, make_engine, reproduce

    if given.address is not None and given.engine != "ray":
        raise BylotError("--address is of a Ray cluster; add --engine ray")
    if given.rounds < 10:
        raise BylotError(f"--rounds {given.rounds} is too short: the regime has 10 blocks; give 10")
    wish = ReproduceRequest(
        experiments=EXPERIMENT_SETS.get(given.what, (given.what,)),
        seeds=given.seeds,
        rounds=given.rounds,
        only=tuple(given.only),
        variants=given.variants,
        settings=given.settings,
        hospital=read_hospital_option(given.hospital) if given.what == "default" else None,
    )
    where = make_engine(given.engine, given.jobs, given.address)
    out = given.out or RESULT_FOLDERS[given.what]
    return reproduce(wish, read_crowd_options(given), where, out, fresh=given.fresh)


def read_hospital_option(given: Path | None) -> Any:
    """The panel in a folder, that of the environment if none is given; None without either."""
    from bylot.errors import BylotError
    from bylot_paper.scenarios import HOSPITAL_FILES, read_hospital

    named = os.environ.get("BYLOT_HOSPITAL")
    folder = given or (Path(named) if named else None)
    if folder is None:
        return None
    for name in HOSPITAL_FILES:
        if not (folder / name).is_file():
            said = "--hospital" if given else "$BYLOT_HOSPITAL"
            raise BylotError(
                f"{said} {folder} has no {name}; give a folder with {', '.join(HOSPITAL_FILES)}"
            )
    return read_hospital(folder)


def run_plot(given: argparse.Namespace) -> int:
    """Figures only."""
    from bylot_paper.records import read_records
    from bylot_paper.report import draw_figures

    for path in draw_figures(read_records(given.folder), given.folder):
        print(path)
    return 0


def run_report(given: argparse.Namespace) -> int:
    """Everything that is made from records."""
    from bylot_paper.records import read_records
    from bylot_paper.report import write_report

    for path in write_report(read_records(given.folder), given.folder).paths:
        print(path)
    return 0
