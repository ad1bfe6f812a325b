"""The decorators that compile numerics, and a disk cache that cannot be stale."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.caching import UserProvidedCacheLocator

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
COMPILED_PARTS = ("numerics", "policies", "simulation.py")
"""The parts of the package that contain compiled code; other parts change without recompiling."""


def list_sources(package: Path, parts: Iterable[str]) -> list[Path]:
    """List the Python files of parts of a package: modules, and all files of folders."""
    places = [package / part for part in parts]
    return sorted(
        path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))
    )


def fingerprint_sources() -> str:
    """Digest of the contents of all compiled sources.

    numba invalidates a cached function when its own file changes, but not when a function that it
    calls changes. One cache folder per digest cannot be stale.
    """
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    for path in list_sources(PACKAGE_FOLDER, COMPILED_PARTS):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PACKAGE_FOLDER)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def find_cache_folder() -> str | None:
    """Find the first writable folder: $NUMBA_CACHE_DIR, the user's cache, the temporary folder."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    given = os.environ.get("NUMBA_CACHE_DIR")
    spare = Path(tempfile.gettempdir()) / f"bylot-{os.getuid() if hasattr(os, 'getuid') else 0}"
    for base in [Path(given)] if given else [Path(user) / "bylot", spare]:
        folder = base / "compiled" / fingerprint_sources()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if base == spare:  # a shared parent folder, and the code in it will run
                base.chmod(0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
            for entry in folder.rglob("*.nb?"):
                if entry.stat().st_size == 0:  # left by a full disk or a crash
                    entry.unlink()
            return str(folder)
        except OSError:
            continue
    return None


CACHE_FOLDER = find_cache_folder()


class SharedCacheLocator(UserProvidedCacheLocator):  # type: ignore[misc]
    """Names cache folders by package, not by path: equal sources share compiled code."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Folder of a source file below the cache folder."""
        return "_".join(Path(py_file).resolve().relative_to(PACKAGE_FOLDER).parts[:-1]) or "bylot"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Locator for functions of this package; None for those of others."""
        inside = Path(py_file).resolve().is_relative_to(PACKAGE_FOLDER)
        return super().from_function(py_func, py_file) if inside else None


CACHE_LOCATORS = f"{__name__}.SharedCacheLocator,UserProvidedCacheLocator"


def jit(function: FunctionT, **options: str) -> FunctionT:
    """Compile a function: no GIL, no Python fallback, strict IEEE arithmetic, cached on disk.

    Strict arithmetic (no fastmath) makes the simulator's loop and the router's single calls agree
    to the last bit, whatever the compiler inlines.
    """
    # numba reads its settings when it decorates a function: other packages keep theirs.
    config = numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = CACHE_FOLDER or "", CACHE_LOCATORS
    try:
        cache = CACHE_FOLDER is not None
        decorate = numba.njit(nogil=True, error_model="numpy", cache=cache, **options)
        return decorate(function)  # type: ignore[no-any-return]
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


def jit_inline(function: FunctionT) -> FunctionT:
    """Compile a small function of the hot loop and inline it into its callers.

    A call would count a reference for every array argument, which costs more than the work.
    """
    return jit(function, inline="always")
