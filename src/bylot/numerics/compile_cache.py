"""The disk cache of compiled code: a folder that is never stale, pruned, and private to its owner.

Compiling is left to `jit`.
"""

import functools
import glob
import hashlib
import inspect
import os
import pickle
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.runtime import rtsys
from numba.cpython import hashing  # noqa: F401 (it adds symbols)

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
COMPILED_PARTS = (
    *("environments/base.py", "environments/call_costs.py", "limits", "numerics", "policies"),
    *("problem/polytope.py", "simulation.py", "trace.py"),
    "_windows.py",
)
"""The parts of the package with compiled code, with types and constants that it uses, and with
programs whose solutions `result_cache` keeps; other parts change without recompiling."""

MAX_UNUSED_S = 30 * 86_400.0  # after which the cache of another version is removed
MAX_CACHED_VERSIONS = 32
USE_NOTED_S = 86_400.0  # how exactly the last use of a folder is known
DIGEST_LENGTH = 16
ENTRY_DIGITS = 32
CHECKSUM_BYTES = 16


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
    return digest.hexdigest()[:DIGEST_LENGTH]


def find_cache_folder() -> str | None:
    """Find the first usable folder: $NUMBA_CACHE_DIR, the user's cache, the temporary folder.

    A folder that was filled before, such as one in an image, need not be writable.
    """
    given, user = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if given:
        return prepare_folder(Path(given), given=True)
    own = Path(user or os.path.expanduser("~/.cache")) / "bylot"
    spare = Path(tempfile.gettempdir()) / f"bylot-{get_user_id()}"
    return prepare_folder(own, given=False) or prepare_folder(spare, given=False)


def prepare_folder(base: Path, *, given: bool) -> str | None:
    """Make the folder of these sources below a base, and note its use; None if that is unusable.

    The code in it will run: a base that the user has not given must be the user's own.
    """
    folder = base / "compiled" / fingerprint_sources()
    try:
        base.mkdir(mode=0o777 if given else 0o700, parents=True, exist_ok=True)
        if not (given or is_private(base)):
            return None
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            prune_versions(folder)
        if time.time() - folder.stat().st_mtime > USE_NOTED_S:
            with suppress(OSError):  # it may belong to somebody else, as in an image
                os.utime(folder)
        return str(folder) if any(folder.iterdir()) or os.access(folder, os.W_OK) else None
    except OSError:
        return None


def get_user_id() -> int:
    """The number of this user; 0 on systems without."""
    return os.getuid() if hasattr(os, "getuid") else 0


def is_private(base: Path) -> bool:
    """Is it a folder of this user, not a link to one? Others lose the right to write into it."""
    if not hasattr(os, "getuid"):
        return True
    found = os.lstat(base)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        base.chmod(0o700)
    return True


def prune_versions(folder: Path) -> None:
    """Remove the caches of other versions that were not used for long, and the oldest of many."""
    last_use = {}
    for other in folder.parent.iterdir():
        with suppress(OSError):
            if other != folder and len(other.name) == DIGEST_LENGTH and not other.is_symlink():
                last_use[other] = other.stat().st_mtime
    newest = sorted(last_use, key=lambda other: -last_use[other])
    for rank, other in enumerate(newest, 2):  # this version is the first
        if rank > MAX_CACHED_VERSIONS or time.time() - last_use[other] > MAX_UNUSED_S:
            shutil.rmtree(other, ignore_errors=True)


CACHE_FOLDER = find_cache_folder()


@functools.cache
def locate_entries(py_file: str) -> str:
    """Folder of the entries of a source file; equal sources anywhere share compiled code."""
    path = Path(py_file).resolve()
    if path.is_relative_to(PACKAGE_FOLDER):
        part = "_".join(path.relative_to(PACKAGE_FOLDER).parts[:-1]) or "bylot"
    else:
        part = UserProvidedCacheLocator.get_suitable_cache_subpath(py_file)
    folder = os.path.join(CACHE_FOLDER or "", part)
    with suppress(OSError):  # read-only, and perhaps filled before
        os.makedirs(folder, exist_ok=True)
    return folder


class SharedCacheLocator(UserProvidedCacheLocator):  # type: ignore[misc]
    """Says where numba keeps the compiled code of a function."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        self._cache_path = locate_entries(py_file)

    def ensure_cache_path(self) -> None:
        """Nothing to do: `locate_entries` has made the folder."""


class SharedCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Names the entries of a function, without numba's settings, which other packages share."""

    def __init__(self, py_func: Any) -> None:
        py_file = inspect.getfile(py_func)
        self._lineno = py_func.__code__.co_firstlineno
        self._locator = SharedCacheLocator(py_func, py_file)
        name = f"{Path(py_file).stem}.{py_func.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))


def list_tuple_classes(kind: Any) -> list[type]:
    """The classes of tuples in a type, or in the types of a signature."""
    if isinstance(kind, types.StructRef):
        return list_tuple_classes(tuple(kind.field_dict.values()))
    if not isinstance(kind, tuple | types.BaseTuple):
        return []
    own = [kind.instance_class] if isinstance(kind, types.BaseNamedTuple) else []
    return own + [found for one in kind for found in list_tuple_classes(one)]


@functools.cache
def describe_class(one: type) -> str:
    """Its module, name and fields and, outside of the package, a digest of the source.

    Compiled code chooses steps by such classes, which a policy defines beside its steps.
    """
    file = getattr(sys.modules.get(one.__module__), "__file__", None)
    text = f"{one.__module__}.{one.__qualname__} {getattr(one, '_fields', ())}"
    if file is None or Path(file).resolve().is_relative_to(PACKAGE_FOLDER):
        return text
    return f"{text} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"


def add_checksum(name: str, content: bytes) -> bytes:
    """What to write into the file of this name: a checksum of both, then the content."""
    return hashlib.sha256(name.encode() + content).digest()[:CHECKSUM_BYTES] + content


def remove_checksum(name: str, stored: bytes) -> bytes | None:
    """The content of the file of this name; None if it is damaged, or that of another file."""
    content = stored[CHECKSUM_BYTES:]
    return content if stored == add_checksum(name, content) else None


class EntryFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The compiled code of a function: a file for each signature, named by a digest of it.

    numba numbers the files, and an index says which signature has which. Two processes that compile
    at the same time may take the same number, and then one runs the code of another signature.
    Every file begins with a checksum: damaged machine code would crash, or compute something else.
    """

    def __init__(self, folder: str, function: str, source_stamp: object) -> None:
        super().__init__(folder, function, source_stamp)
        self.function = function

    def name_entry(self, key: Any) -> str:
        """The file of a signature, for a processor and a version of numba and of the source.

        numba's text of a signature has the name of a class of tuples only.
        """
        classes = [describe_class(one) for one in list_tuple_classes(key[0])]
        text = f"{self._version} {self._source_stamp!r} {key} {classes}"
        return f"{self.function}.{hashlib.sha256(text.encode()).hexdigest()[:ENTRY_DIGITS]}.nbc"

    def _save_data(self, name: str, data: Any) -> None:
        with self._open_for_write(self._data_path(name)) as file:
            file.write(add_checksum(name, self._dump(data)))

    def _load_data(self, name: str) -> Any:
        content = remove_checksum(name, Path(self._data_path(name)).read_bytes())
        return None if content is None else pickle.loads(content)

    def flush(self) -> None:
        """Remove the code of all signatures."""
        for path in Path(self._cache_path).glob(f"{glob.escape(self.function)}.*.nbc"):
            path.unlink(missing_ok=True)

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self.name_entry(key), data)

    def load(self, key: Any) -> Any:
        try:
            return self._load_data(self.name_entry(key))
        except FileNotFoundError:
            return None


class SharedCache(FunctionCache):  # type: ignore[misc]
    """A cache that cannot fail: what a full disk or a crash has damaged is compiled again."""

    _impl_class = SharedCacheImpl
    _cache_file: Any

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        stamp = self._cache_file._source_stamp  # computed once, as it reads the source
        self._cache_file = EntryFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As numba does, but without loading what only compilation needs, its slowest imports.

        Machine code needs the symbols of the runtime, and of `hashing` if it has dictionaries.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception:  # unpickling damaged data can raise anything
            return None  # the code is compiled, and replaces it

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


def make_cache(function: Any) -> SharedCache | None:
    """The cache of a function; None without a folder or a source file."""
    if CACHE_FOLDER is None or not os.path.exists(inspect.getfile(function)):
        return None
    return SharedCache(function)
