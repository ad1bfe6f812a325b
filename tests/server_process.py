"""`bylot serve` in a process of its own, from the same sources as the tests."""

import os
from pathlib import Path

import bylot
from bylot_bench.http_load import ServerProcess

SOURCES = str(Path(bylot.__file__).parents[1])


def serve_store(
    store: str,
    log: Path | None = None,
    command: str = "bylot",
    config: Path | None = None,
    **environment: str,
) -> ServerProcess:
    """A server on a store; as a context manager it is stopped at the end."""
    paths = os.pathsep.join([SOURCES, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words: tuple[str, ...] = (
        "serve",
        "--store",
        store,
        "--log-level",
        "info" if log else "warning",
    )
    if config is not None:
        words += ("--config", str(config))
    changed = {**os.environ, "PYTHONPATH": paths, **environment}
    return ServerProcess(command, *words, log=log, environment=changed)
