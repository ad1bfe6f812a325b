"""Options of the verbs that open a store themselves."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

DEFAULT_STORE = "sqlite:///bylot.db"


def add_store_option(verb: argparse.ArgumentParser) -> None:
    """Where the logs are."""
    verb.add_argument(
        "--store",
        default=DEFAULT_STORE,
        metavar="ADDRESS",
        help="sqlite:///FILE (three slashes: from here; four: from the root), or "
        f"postgresql://USER@HOST/DATABASE (default {DEFAULT_STORE})",
    )


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Say how to get the packages of a server, if one is missing."""
    from bylot.errors import BylotError, install_command

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bylot"):
            raise
        raise BylotError(f"a server needs {error.name}: {install_command('serve')}") from None
