"""Options of the verbs that open a store themselves."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

FILE = "sqlite:///bylot.db"


def add_store(verb: argparse.ArgumentParser) -> None:
    """Where the logs are."""
    verb.add_argument(
        "--store",
        default=FILE,
        metavar="ADDRESS",
        help="sqlite:///FILE (three slashes: from here; four: from the root), or "
        f"postgresql://USER@HOST/DATABASE (default {FILE})",
    )


@contextmanager
def needing_serve() -> Iterator[None]:
    """Say how to get the packages of a server, if one is missing."""
    from bylot.errors import BylotError
    from bylot.extras import install

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bylot"):
            raise
        raise BylotError(f"a server needs {error.name}: {install('serve')}") from None
