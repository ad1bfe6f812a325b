"""The command line: parse, call, print; everything else is imported when a verb needs it."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

from bylot.cli import (
    bench,
    data,
    decide,
    demo,
    evaluate,
    keys,
    optimum,
    problem,
    replay,
    reproduce,
    reward,
    router,
    serve,
    simulate,
)
from bylot.errors import BylotError
from bylot.version import __version__

PLAY = (demo, problem, optimum, simulate, reproduce, evaluate, data, bench)
SERVE = (serve, keys, router, decide, reward, replay)

READER_GONE = 141  # 128 + SIGPIPE: how a shell reports a program whose reader has gone


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 if it went well, 1 for an error that we can explain, 2 for bad usage.

    141 if whoever read what we print (`| head -1`) has gone: nobody is left to be told of it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a sign that it has not is no end of the work
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return run_verb(arguments)
        finally:  # a pipe without a reader shows here, and not when the interpreter ends
            print(end="", flush=True)
    except BrokenPipeError:
        discard_unwritten()
        return READER_GONE
    except OSError as error:
        if error.filename is not None:  # of a file, not of what we print
            raise
        print(f"bylot: output cannot be written ({error.strerror}); make room", file=sys.stderr)
        discard_unwritten()
        return 1


def run_verb(arguments: Sequence[str] | None) -> int:
    """The verb's own answer, or its error in one line."""
    given = make_parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except BylotError as error:
        print(f"bylot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bylot: stopped", file=sys.stderr)
        return 130


def discard_unwritten() -> None:
    """Point each broken stream nowhere: the interpreter flushes them once more as it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def make_parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    top = argparse.ArgumentParser(
        prog="bylot",
        description="Draw a panel of experts for every request, learn from one reward per panel, "
        "and keep long-run limits on both sides.",
    )
    top.add_argument("--version", action="version", version=f"bylot {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in (*PLAY, *SERVE):
        verb.add(verbs)
    return top
