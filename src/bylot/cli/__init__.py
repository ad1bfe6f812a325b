"""The command line: parse, call, print; everything else is imported when a verb needs it."""

import argparse
import sys
from collections.abc import Sequence

from bylot.cli import bench, data, demo, evaluate, optimum, problem, reproduce, simulate
from bylot.errors import BylotError
from bylot.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 if it went well, 1 for an error that we can explain, 2 for bad usage."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except BylotError as error:
        print(f"bylot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bylot: stopped", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    top = argparse.ArgumentParser(
        prog="bylot",
        description="Draw a panel of experts for every request, learn from one reward per panel, "
        "and keep long-run limits on both sides.",
    )
    top.add_argument("--version", action="version", version=f"bylot {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in (demo, problem, optimum, simulate, reproduce, evaluate, data, bench):
        verb.add(verbs)
    return top
