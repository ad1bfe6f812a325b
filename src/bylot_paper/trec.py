"""The paper's crowd, TREC 2010, known by its sums and counts; `fetch` downloads it."""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from bylot.errors import DataError, DataUnreachable, install_command
from bylot.outcome_tables.text_lines import data_error
from bylot_paper.crowd import Crowd, CrowdCounts
from bylot_paper.crowd_files import read_crowd

TREC_CROWD_FILE, TREC_TRUTH_FILE = "trec_crowd.txt", "trec_truth.txt"
TREC_SHA256 = {
    TREC_CROWD_FILE: "821141b1e95b1ff516ebccf6869f2ac88ca93035d6991b8039d76275866de402",
    TREC_TRUTH_FILE: "405b4ff78e79b912252f19ff68116e71abe3a21c2051c7c701e7a16acbeae3e4",
}
TREC_DIGEST = (
    "603edac248391f30d3a11b28545c1ea11cdf631d7ee3b8732998e48bc5a63f69"  # of the joined crowd
)
TREC_COUNTS = CrowdCounts(workers=677, tasks=2275, annotations=12863, reliable=270)  # the paper's
TREC_URL = "https://raw.githubusercontent.com/zhangyuc/SpectralMethodsMeetEM/master/src/"


def read_trec(folder: str | PathLike[str]) -> Crowd:
    """The crowd of trec_crowd.txt and trec_truth.txt in a folder, if they are the paper's."""
    for name, wanted in TREC_SHA256.items():
        check_sha256(Path(folder) / name, wanted)
    return check_counts(
        read_crowd(Path(folder) / TREC_CROWD_FILE, Path(folder) / TREC_TRUTH_FILE, name="trec"),
        TREC_COUNTS,
    )


def check_sha256(path: Path, wanted: str) -> None:
    """Refuse a file that is not the one we know."""
    try:
        got = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        remedy = f"download it from {TREC_URL}{path.name} into that folder"
        raise data_error(path, "no such file, or it cannot be read", remedy) from None
    if got != wanted:
        what = f"is not the paper's file: its sha256 is {got}, wanted {wanted}"
        raise data_error(path, what, f"download it again, unchanged, from {TREC_URL}{path.name}")


def check_counts(crowd: Crowd, wanted: CrowdCounts) -> Crowd:
    """The crowd itself, if it has the counts that are wanted."""
    pairs = zip(CrowdCounts._fields, crowd.counts, wanted, strict=True)
    wrong = [
        f"{got:,} {noun} where {want:,} are wanted" for noun, got, want in pairs if got != want
    ]
    if wrong:
        raise DataError(
            f"crowd {crowd.name!r} has {', '.join(wrong)}; download its files again from {TREC_URL}"
        )
    return crowd


DOWNLOAD_ATTEMPTS = 4
RETRY_PAUSE_S = 0.5  # seconds before the second attempt; twice as long before each further one
DOWNLOAD_TIMEOUTS_S = (10, 30)  # seconds to wait for a connection, and for the next bytes
DOWNLOAD_CHUNK_BYTES = 1 << 12  # at most so many bytes of a broken connection are asked for again
DOWNLOAD_PACKAGES = ("pooch", "requests", "tqdm")
MANUAL_DOWNLOAD = (
    f"download {' and '.join(TREC_SHA256)} from {TREC_URL} by hand and pass --data FOLDER"
)
DOWNLOAD_REMEDY = f"{MANUAL_DOWNLOAD}, or pass --data synthetic"


def fetch_trec(to: str | os.PathLike[str] | None = None, base: str = TREC_URL) -> Path:
    """The folder that holds both TREC files, after downloading what is missing or wrong there.

    to: a folder, instead of the user's cache (below $XDG_CACHE_HOME if that is set).
    """
    pooch, *_ = map(import_extra, DOWNLOAD_PACKAGES)
    folder = Path(find_cached_trec() if to is None else to).absolute()
    sums = {name: f"sha256:{digest}" for name, digest in TREC_SHA256.items()}
    store = pooch.create(folder, base_url=base, registry=sums)
    for name in TREC_SHA256:
        downloader = ResumingDownloader(folder / f"{name}.part")
        with explain_download_errors(downloader):
            store.fetch(name, downloader=downloader)
    return folder


def find_cached_trec() -> Path:
    """The folder of this user's cache that TREC is kept in, there or not."""
    return Path(import_extra("pooch").os_cache("bylot")) / "trec"


class ResumingDownloader:
    """A downloader for pooch that keeps what came in a .part file and asks for the rest only."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.got = ""  # sha256 of what came, once it is whole

    def __call__(self, url: str, target: str, _: Any) -> None:
        """Put the file into target; pooch checks its sum and gives it its name."""
        requests = import_extra("requests")
        for attempt in range(DOWNLOAD_ATTEMPTS):
            try:
                self.continue_from(url)
                break
            except requests.RequestException as error:
                refused = error.response is not None and error.response.status_code < 500
                if refused or attempt == DOWNLOAD_ATTEMPTS - 1:
                    raise
                time.sleep(RETRY_PAUSE_S * 2**attempt)
        self.hand_over(target)

    def continue_from(self, url: str) -> None:
        """Ask for what is not there yet and append it; from the start if the server insists."""
        requests, bar = import_extra("requests"), import_extra("tqdm").tqdm
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # a range of zipped bytes could not be appended
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=DOWNLOAD_TIMEOUTS_S) as answer:
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
                for chunk in answer.iter_content(DOWNLOAD_CHUNK_BYTES):
                    progress.update(file.write(chunk))

    def hand_over(self, target: str) -> None:
        """Copy the whole file out, and drop the .part: right or wrong, nothing is left to resume.

        A copy, as another process may still be appending to the .part.
        """
        shutil.copyfile(self.part, target)
        self.part.unlink()
        self.got = import_extra("pooch").file_hash(target, alg="sha256")


@contextmanager
def explain_download_errors(downloader: ResumingDownloader) -> Iterator[None]:
    """What goes wrong in a download, in our own words and in one line."""
    requests = import_extra("requests")
    folder, name = downloader.part.parent, downloader.part.stem
    try:
        yield
    except requests.RequestException as error:
        raise DataUnreachable(
            f"{name}: cannot be downloaded ({describe_request_error(error)}); {DOWNLOAD_REMEDY}"
        ) from None
    except OSError as error:
        raise DataError(
            f"{folder}: {name} cannot be kept there ({error.strerror or error}); "
            "make room there or choose another folder (XDG_CACHE_HOME sets the user's cache)"
        ) from None
    except ValueError:  # pooch found another sum, and has thrown the file away
        raise DataError(
            f"{name}: the download has sha256 {downloader.got}, wanted {TREC_SHA256[name]}; it was thrown "
            f"away: try again, or {MANUAL_DOWNLOAD}"
        ) from None


def describe_request_error(error: Any) -> str:
    """The cause of a failed request, without the innards of three libraries."""
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    return f"{type(error).__name__}: no network, or the server does not answer or broke off"


def import_extra(name: str) -> ModuleType:
    """A package that only downloads need, imported when it is needed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"downloading needs the package {error.name!r}; {install_command('reproduce')}, or {DOWNLOAD_REMEDY}"
        ) from None
