"""`bylot serve` in a process of its own, from the sources of this checkout."""

import os
from pathlib import Path

from bylot_bench.http_load import ServerProcess

SOURCES = str(Path(__file__).parent.parent / "src")


def serve_store(store: str, log: Path | None = None) -> ServerProcess:
    """A server on a store; as a context manager it is stopped at the end."""
    paths = os.pathsep.join([SOURCES, os.environ.get("PYTHONPATH", "")])
    words = ("serve", "--store", store, "--log-level", "warning")
    return ServerProcess("bylot", *words, log=log, environment={**os.environ, "PYTHONPATH": paths})
