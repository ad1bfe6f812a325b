"""`bylot data fetch|show`: get the paper's data, look at a crowd before playing on it."""

import argparse
from pathlib import Path
from typing import Any


def add(verbs: Any) -> None:
    """The verb and what it can do."""
    data = verbs.add_parser("data", help="fetch the paper's data; look at a crowd of your own")
    kinds = data.add_subparsers(title="what to do", metavar="WHAT", required=True)

    fetch = kinds.add_parser("fetch", help="download a data set and check its sums")
    fetch.add_argument("name", choices=["trec"], help="the TREC 2010 crowd, which the paper plays")
    fetch.add_argument("--to", type=Path, help="folder (default: this user's cache)")
    fetch.set_defaults(run=run_fetch)

    show = kinds.add_parser("show", help="read a crowd and tell what is in it")
    add_crowd_options(show)
    show.set_defaults(run=run_show)


def add_crowd_options(verb: argparse.ArgumentParser) -> None:
    """Options that say which crowd is meant."""
    verb.add_argument(
        "--data",
        metavar="DIR|synthetic",
        help="folder with trec_crowd.txt and trec_truth.txt, or 'synthetic' for a made-up crowd "
        "(default: $BYLOT_DATA, the user's cache, a download, and without a network synthetic)",
    )
    verb.add_argument("--offline", action="store_true", help="do not download anything")
    verb.add_argument("--crowd", type=Path, help="a file of your own: task worker label")
    verb.add_argument("--truth", type=Path, help="and its truth: task label")


def read_crowd_options(given: argparse.Namespace) -> Any:
    """The crowd that these options mean."""
    from bylot.errors import BylotError
    from bylot_paper.crowd_sources import crowd_from_files, find_crowd

    if (given.crowd is None) != (given.truth is None):
        raise BylotError("--crowd and --truth belong together: give both, or --data")
    if given.crowd is None:
        return find_crowd(given.data, offline=given.offline)
    if given.data is not None:
        raise BylotError("--data and --crowd both say which crowd to take; give one of them")
    return crowd_from_files(given.crowd, given.truth)


def run_fetch(given: argparse.Namespace) -> int:
    """Download."""
    from bylot_paper.crowd import describe_crowd
    from bylot_paper.crowd_sources import find_crowd
    from bylot_paper.trec import fetch_trec

    folder = fetch_trec(given.to)
    print(describe_crowd(find_crowd(str(folder))))
    print(f"in {folder}")
    return 0


def run_show(given: argparse.Namespace) -> int:
    """Describe."""
    from bylot_paper.crowd import describe_crowd

    print(describe_crowd(read_crowd_options(given)))
    return 0
