"""Small results of solvers, kept on disk beside compiled code.

A start of a process that has solved the same programs before need not load the solver.
"""

import hashlib
import os
import platform
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from bylot.numerics.compile_cache import CACHE_FOLDER, add_checksum, remove_checksum
from bylot.numerics.jit import Floats

RESULTS_FOLDER = None if CACHE_FOLDER is None else Path(CACHE_FOLDER) / "results"
MAX_RESULTS = 1_000  # of which the older half is removed when there are more
MAX_RESULT_NUMBERS = 1_000  # for more, the solver takes longer than its import


def recall_result(
    kind: str, given: tuple[Any, ...], compute: Callable[[], Floats | None]
) -> Floats | None:
    """What `compute` returns, computed once for this version and these numbers or arrays.

    The result must depend on nothing else. None is not kept.
    """
    if RESULTS_FOLDER is None:
        return compute()
    path = RESULTS_FOLDER / digest_arrays(kind, given)
    known = read_result(path)
    if known is not None:
        return known
    found = compute()
    if found is not None and found.size <= MAX_RESULT_NUMBERS:
        with suppress(OSError):  # read-only or full
            keep_result(path, found)
    return found


def digest_arrays(kind: str, given: tuple[Any, ...]) -> str:
    """Digest of arrays, and of what else the answer of a solver may depend on."""
    digest = hashlib.sha256(f"{kind} {scipy.__version__} {platform.machine()}".encode())
    for one in given:
        array = np.asarray(one)
        digest.update(f"\n{array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def read_result(path: Path) -> Floats | None:
    """Read a result; None if there is none, or what is there is damaged."""
    try:
        content = remove_checksum(path.name, path.read_bytes())
    except OSError:
        return None
    return None if content is None else np.frombuffer(content).copy()


def keep_result(path: Path, result: Floats) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}")
    temporary.write_bytes(add_checksum(path.name, result.tobytes()))
    temporary.replace(path)
    prune_results(path.parent)


def prune_results(folder: Path) -> None:
    """Remove the older half of too many results."""
    if len(os.listdir(folder)) <= MAX_RESULTS:
        return
    last_write = {}
    for path in folder.iterdir():
        with suppress(OSError):  # another process has removed it
            last_write[path] = path.stat().st_mtime
    for path in sorted(last_write, key=last_write.__getitem__)[: len(last_write) // 2]:
        path.unlink(missing_ok=True)
