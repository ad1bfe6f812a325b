"""The command line: parse, call, print. Each verb imports what it needs when it runs."""

import io
import os
import sys
from collections.abc import Sequence

from bylot import __version__
from bylot.cli import compile as compiling
from bylot.cli import evaluate, paper, routers, serve, stores, whatif
from bylot.cli.options import VerbParser
from bylot.errors import BylotError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns 0 on success, 1 for an error that it explains, 2 for wrong usage, 130 if interrupted,
    and 141 (128 + SIGPIPE) if the reader of standard output has closed the pipe (`| head -1`).
    """
    # Matrices are small: threads of BLAS would wait for each other and double the CPU time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy is loaded, by a verb
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape what the terminal cannot encode
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return run_verb(arguments)
        finally:  # so that a broken pipe shows here, not when the interpreter exits
            print(end="", flush=True)
    except BrokenPipeError:
        discard_unwritten()
        return 141  # 128 + SIGPIPE, as a shell reports it
    except OSError as error:
        if error.filename is not None:  # about a file, not about standard output
            raise
        print(f"bylot: cannot write output: {error.strerror}; free some space", file=sys.stderr)
        discard_unwritten()
        return 1


def run_verb(arguments: Sequence[str] | None) -> int:
    """Run the verb; print an expected error on one line."""
    given = make_parser().parse_args(arguments)
    try:
        return int(given.run(given) or 0)
    except BylotError as error:
        print(f"bylot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bylot: interrupted", file=sys.stderr)
        return 130


def discard_unwritten() -> None:
    """Redirect broken streams to /dev/null: the interpreter flushes them again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def make_parser() -> VerbParser:
    top = VerbParser(
        prog="bylot",
        description="Route each request to a small panel of experts, learn from one reward per "
        "panel or from scores of its members, and keep long-run limits, both upper and lower.",
    )
    top.add_argument("--version", action="version", version=f"bylot {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for chapter in (whatif, evaluate, paper, serve, stores, routers, compiling):
        chapter.add(verbs)
    return top
