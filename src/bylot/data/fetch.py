"""Downloading the TREC files into the user's cache: checked, and continued where it broke off."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from bylot.data.trec import SUMS, URL
from bylot.errors import DataError, DataUnreachable
from bylot.extras import install

ATTEMPTS = 4
PAUSE = 0.5  # seconds before the second attempt; twice as long before each further one
PATIENCE = (10, 30)  # seconds to wait for a connection, and for the next bytes
CHUNK = 1 << 12  # at most so many bytes of a broken connection are asked for again
NEEDED = ("pooch", "requests", "tqdm")
BY_HAND = f"download {' and '.join(SUMS)} from {URL} by hand and pass --data FOLDER"
REMEDY = f"{BY_HAND}, or pass --data synthetic"


def fetch_trec(to: str | os.PathLike[str] | None = None, base: str = URL) -> Path:
    """The folder that holds both TREC files, after downloading what is missing or wrong there.

    to: a folder, instead of the user's cache (below $XDG_CACHE_HOME if that is set).
    """
    pooch, *_ = map(extra, NEEDED)
    folder = Path(cached_trec() if to is None else to).absolute()
    sums = {name: f"sha256:{digest}" for name, digest in SUMS.items()}
    store = pooch.create(folder, base_url=base, registry=sums)
    for name in SUMS:
        downloader = Resuming(folder / f"{name}.part")
        with explained(downloader):
            store.fetch(name, downloader=downloader)
    return folder


def cached_trec() -> Path:
    """The folder of this user's cache that TREC is kept in, there or not."""
    return Path(extra("pooch").os_cache("bylot")) / "trec"


class Resuming:
    """A downloader for pooch that keeps what came in a .part file and asks for the rest only."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.got = ""  # sha256 of what came, once it is whole

    def __call__(self, url: str, target: str, _: Any) -> None:
        """Put the file into target; pooch checks its sum and gives it its name."""
        requests = extra("requests")
        for attempt in range(ATTEMPTS):
            try:
                self.continue_from(url)
                break
            except requests.RequestException as error:
                refused = error.response is not None and error.response.status_code < 500
                if refused or attempt == ATTEMPTS - 1:
                    raise
                time.sleep(PAUSE * 2**attempt)
        self.hand_over(target)

    def continue_from(self, url: str) -> None:
        """Ask for what is not there yet and append it; from the start if the server insists."""
        requests, bar = extra("requests"), extra("tqdm").tqdm
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # a range of zipped bytes could not be appended
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
            if answer.status_code == 416:  # nothing beyond what we have: the sum will judge it
                return
            answer.raise_for_status()
            ours = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            resumed = answer.status_code == 206 and ours
            start = have if resumed else 0
            rest = answer.headers.get("Content-Length", "")
            with (
                self.part.open("ab" if resumed else "wb") as file,
                bar(
                    total=start + int(rest) if rest.isdecimal() else None,
                    initial=start,
                    desc=self.part.stem,
                    unit="B",
                    unit_scale=True,
                    disable=None,  # where nobody watches
                ) as progress,
            ):
                for chunk in answer.iter_content(CHUNK):
                    progress.update(file.write(chunk))

    def hand_over(self, target: str) -> None:
        """Copy the whole file out, and drop the .part: right or wrong, nothing is left to resume.

        A copy, as another process may still be appending to the .part.
        """
        shutil.copyfile(self.part, target)
        self.part.unlink()
        self.got = extra("pooch").file_hash(target, alg="sha256")


@contextmanager
def explained(downloader: Resuming) -> Iterator[None]:
    """What goes wrong in a download, in our own words and in one line."""
    requests = extra("requests")
    folder, name = downloader.part.parent, downloader.part.stem
    try:
        yield
    except requests.RequestException as error:
        raise DataUnreachable(f"{name}: cannot be downloaded ({why(error)}); {REMEDY}") from None
    except OSError as error:
        raise DataError(
            f"{folder}: {name} cannot be kept there ({error.strerror or error}); "
            "make room there or choose another folder (XDG_CACHE_HOME sets the user's cache)"
        ) from None
    except ValueError:  # pooch found another sum, and has thrown the file away
        raise DataError(
            f"{name}: the download has sha256 {downloader.got}, wanted {SUMS[name]}; it was thrown "
            f"away: try again, or {BY_HAND}"
        ) from None


def why(error: Any) -> str:
    """The cause of a failed request, without the innards of three libraries."""
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    return f"{type(error).__name__}: no network, or the server does not answer or broke off"


def extra(name: str) -> ModuleType:
    """A package that only downloads need, imported when it is needed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"downloading needs the package {error.name!r}; {install('reproduce')}, or {REMEDY}"
        ) from None
