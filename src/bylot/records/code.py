"""Which code made a record: a digest of the sources that decide what is in it."""

import hashlib
from pathlib import Path

from bylot.kernels.compile import PACKAGE, sources

DECISIVE = (
    "bounds.py",
    "data",
    "environments",
    "experiments",
    "kernels",
    "metrics.py",
    "optima",
    "policies",
    "pools.py",
    "problem",
    "simulation.py",
)
"""The parts of the package that records depend on; the others may change and a run go on."""


def code_digest(package: Path = PACKAGE) -> str:
    """Of the contents and names of the sources, not of when or where they were installed."""
    digest = hashlib.sha256()
    for path in sources(package, DECISIVE):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
