"""Where a crowd comes from: files, the TREC data, or a synthetic crowd that resembles them."""

import hashlib
import os
import shutil
import time
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from bylot._text import print_progress
from bylot.errors import DataError, DataUnreachable, install_command
from bylot.outcome_tables.sheets import data_error
from bylot_paper.crowd import SYNTHETIC_NAME, Crowd, CrowdCounts, make_synthetic_crowd
from bylot_paper.crowd_files import read_crowd

TREC_CROWD_FILE, TREC_TRUTH_FILE = "trec_crowd.txt", "trec_truth.txt"
TREC_SHA256 = {
    TREC_CROWD_FILE: "821141b1e95b1ff516ebccf6869f2ac88ca93035d6991b8039d76275866de402",
    TREC_TRUTH_FILE: "405b4ff78e79b912252f19ff68116e71abe3a21c2051c7c701e7a16acbeae3e4",
}
TREC_DIGEST = "603edac248391f30d3a11b28545c1ea11cdf631d7ee3b8732998e48bc5a63f69"  # joined
TREC_COUNTS = CrowdCounts(workers=677, tasks=2275, annotations=12863, reliable=270)  # the paper's
TREC_URL = "https://raw.githubusercontent.com/zhangyuc/SpectralMethodsMeetEM/master/src/"

DOWNLOAD_ATTEMPTS = 4
RETRY_PAUSE_S = 0.5  # before the second attempt, doubled before each further one
DOWNLOAD_TIMEOUTS_S = (10, 30)  # for a connection, and for the next bytes
DOWNLOAD_CHUNK_BYTES = 1 << 12  # requested again at most, after a broken connection
DOWNLOAD_PACKAGES = ("pooch", "requests", "tqdm")
MANUAL_STEP = f"download {' and '.join(TREC_SHA256)} from {TREC_URL} by hand and pass --data FOLDER"
DOWNLOAD_REMEDY = f"{MANUAL_STEP}, or pass --data synthetic"


def find_crowd(where: str | PathLike[str] | None = None, offline: bool = False) -> Crowd:
    """Find a crowd: the TREC files in the folder `where`, or "synthetic".

    Without `where`: what $BYLOT_DATA names; else TREC from the user's cache, or downloaded into it;
    and if that fails or is not allowed, the synthetic crowd, with a note on standard error.
    """
    named = where if where is not None else os.environ.get("BYLOT_DATA")
    if named == SYNTHETIC_NAME:
        return make_synthetic_crowd()
    if named:
        folder = Path(named)
        if not folder.is_dir():
            raise data_error(
                folder,
                "is not a folder",
                f"give a folder with {' and '.join(TREC_SHA256)}, or {SYNTHETIC_NAME!r}",
            )
        return read_trec(folder)
    if where is not None:
        raise DataError("data", got=where, expected=f"a folder or {SYNTHETIC_NAME!r}")
    if offline:
        folder = find_cached_trec()
        if all((folder / name).is_file() for name in TREC_SHA256):
            return read_trec(folder)
        print_progress("no TREC data (see `bylot data fetch trec`): using a synthetic crowd")
        return make_synthetic_crowd()
    try:
        return read_trec(fetch_trec())
    except DataUnreachable as error:
        print_progress(f"{error}\nno TREC data: using a synthetic crowd, and results will say so")
        return make_synthetic_crowd()


def read_trec(folder: str | PathLike[str]) -> Crowd:
    """Read the TREC crowd from a folder, if its files are the paper's."""
    for name, wanted in TREC_SHA256.items():
        path, url = Path(folder) / name, f"{TREC_URL}{name}"
        try:
            got = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError):
            raise data_error(
                path,
                "no such file, or it cannot be read",
                f"download it from {url} into that folder",
            ) from None
        if got != wanted:
            raise data_error(
                path,
                f"is not the paper's file: its sha256 is {got}, expected {wanted}",
                f"download it again, unchanged, from {url}",
            )
    crowd, truth = (Path(folder) / name for name in TREC_SHA256)
    return check_counts(read_crowd(crowd, truth, name="trec"), TREC_COUNTS)


def check_counts(crowd: Crowd, wanted: CrowdCounts) -> Crowd:
    """Return the crowd if it has these counts, else raise."""
    pairs = zip(CrowdCounts._fields, crowd.counts, wanted, strict=True)
    wrong = [f"{got:,} {noun} instead of {want:,}" for noun, got, want in pairs if got != want]
    if wrong:
        raise DataError(
            f"crowd {crowd.name!r} has {', '.join(wrong)}",
            remedy=f"download its files again from {TREC_URL}",
        )
    return crowd


def fetch_trec(to: str | os.PathLike[str] | None = None, base: str = TREC_URL) -> Path:
    """Download the TREC files that are missing or wrong in a folder, and return the folder.

    to: the folder; by default the user's cache (below $XDG_CACHE_HOME if that is set)
    """
    pooch, *_ = map(import_extra, DOWNLOAD_PACKAGES)
    folder = Path(find_cached_trec() if to is None else to).absolute()
    store = pooch.create(
        folder,
        base_url=base,
        registry={name: f"sha256:{digest}" for name, digest in TREC_SHA256.items()},
    )
    for name in TREC_SHA256:
        fetch_file(store, ResumingDownloader(folder / f"{name}.part"))
    return folder


def find_cached_trec() -> Path:
    """The folder for TREC in the user's cache, whether it exists or not."""
    return Path(import_extra("pooch").os_cache("bylot")) / "trec"


class ResumingDownloader:
    """A downloader for pooch that resumes a broken download from a .part file."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.got = ""  # sha256 of the complete download

    def __call__(self, url: str, target: str, _: Any) -> None:
        """Download to `target`; pooch verifies and renames it."""
        requests = import_extra("requests")
        for attempt in range(DOWNLOAD_ATTEMPTS):
            try:
                self.resume(url)
                break
            except requests.RequestException as error:
                refused = error.response is not None and error.response.status_code < 500
                if refused or attempt == DOWNLOAD_ATTEMPTS - 1:
                    raise
                time.sleep(RETRY_PAUSE_S * 2**attempt)
        # A copy, because another process may still append to the .part file. It is deleted even
        # if the checksum is wrong: nothing of it could be resumed.
        shutil.copyfile(self.part, target)
        self.part.unlink()
        self.got = import_extra("pooch").file_hash(target, alg="sha256")

    def resume(self, url: str) -> None:
        """Request the missing bytes and append them; all of them if the server ignores ranges."""
        requests, bar = import_extra("requests"), import_extra("tqdm").tqdm
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # compressed bytes could not be appended
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=DOWNLOAD_TIMEOUTS_S) as answer:
            if answer.status_code == 416:  # nothing is missing: the checksum decides
                return
            answer.raise_for_status()
            ours = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            start = have if answer.status_code == 206 and ours else 0
            rest = answer.headers.get("Content-Length", "")
            with (
                self.part.open("ab" if start else "wb") as file,
                bar(
                    desc=self.part.stem,
                    total=start + int(rest) if rest.isdecimal() else None,
                    initial=start,
                    unit="B",
                    unit_scale=True,
                    disable=None,  # on a terminal only
                ) as progress,
            ):
                for chunk in answer.iter_content(DOWNLOAD_CHUNK_BYTES):
                    progress.update(file.write(chunk))


def fetch_file(store: Any, downloader: ResumingDownloader) -> None:
    """Download a file unless it is there, and turn errors into one line; store: of pooch."""
    requests = import_extra("requests")
    folder, name = downloader.part.parent, downloader.part.stem
    try:
        store.fetch(name, downloader=downloader)
    except requests.RequestException as error:
        reason = (
            f"{type(error).__name__}: no network, or the server does not answer or broke off"
            if error.response is None
            else f"the server answers {error.response.status_code} {error.response.reason}"
        )
        raise DataUnreachable(f"cannot download {name}: {reason}", remedy=DOWNLOAD_REMEDY) from None
    except OSError as error:
        raise DataError(
            f"cannot save {name} in {folder}: {error.strerror or error}",
            remedy="free some space or choose another folder (XDG_CACHE_HOME sets the cache)",
        ) from None
    except ValueError:  # pooch found another checksum and has deleted the file
        raise DataError(
            f"the download of {name} has sha256 {downloader.got}, expected {TREC_SHA256[name]}",
            remedy=f"it was deleted: try again, or {MANUAL_STEP}",
        ) from None


def import_extra(name: str) -> ModuleType:
    """Import a package that only downloads need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"a download needs {error.name}",
            remedy=f"{install_command('reproduce')}, or {DOWNLOAD_REMEDY}",
        ) from None
