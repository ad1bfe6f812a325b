"""Where a crowd comes from: files, the TREC data, or a synthetic crowd that resembles them.

Files of a crowd are one of answers and one of truths, joined on the task.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from bylot._text import print_progress
from bylot.errors import DataError, DataUnreachable, install_command
from bylot.outcome_tables.sheets import (
    WHOLE_NUMBER,
    data_error,
    describe_lines,
    quote_field,
    read_text_lines,
    split_at_commas,
    split_at_tabs,
)
from bylot_paper.crowd import (
    SYNTHETIC_NAME,
    Annotation,
    Crowd,
    CrowdCounts,
    UnjudgedCounts,
    assemble_crowd,
    make_synthetic_crowd,
)

COLUMN_WORDS = {
    "task": {"task", "item", "question", "object", "document", "example", "instance", "sample"},
    "worker": {"worker", "annotator", "user", "rater", "judge", "labeler", "labeller", "assessor"},
    "label": {"label", "answer", "response", "truth", "gold", "class", "category", "judgment"}
    | {"judgement", "vote", "truelabel", "goldlabel", "groundtruth", "workerlabel"},
}
"""The words of a header that name a column: lower case, letters only, without a final "id"."""


class FieldRows(NamedTuple):
    """The lines of a file, each with its fields in the order of the requested columns."""

    path: Path
    fields: list[tuple[str, ...]]
    header: bool  # was line 1 a header?

    def line(self, row: int) -> int:
        """The number, from 1, of a row's line in the file."""
        return row + 1 + self.header


def read_field_rows(path: Path, columns: Sequence[str]) -> FieldRows:
    """Read a file whose lines have one field for each of the columns. The separator is the one that
    gives most lines that many fields; tabs win a tie, then commas.
    """
    lines = read_text_lines(path)
    separators = (
        split_at_tabs,
        split_at_commas,
        lambda line: re.split("[ \t]+", line.strip(" \t")),
    )
    cut = max(
        ([split(line) for line in lines] for split in separators),
        key=lambda way: sum(len(fields) == len(columns) for fields in way),
    )
    bad = [n for n, fields in enumerate(cut, 1) if len(fields) != len(columns) or "" in fields]
    if bad:
        raise data_error(
            path,
            f"{describe_lines(bad, len(lines))} do not have the {len(columns)} fields "
            f"{', '.join(columns)}",
            "correct or remove them; fields are separated by tabs, commas or blanks",
        )
    order = find_header(path, cut, columns)
    if order is None:
        return FieldRows(path, [tuple(fields) for fields in cut], False)
    return FieldRows(path, [tuple(fields[i] for i in order) for fields in cut[1:]], True)


def find_header(path: Path, cut: list[list[str]], columns: Sequence[str]) -> list[int] | None:
    """The position of each column according to line 1; None if line 1 is data.

    Line 1 is a header if it names every column once by a known word, in any order. If its word for
    the task or the label occurs again in that column it may be data: that is an error, because a
    wrong guess would lose a line or invent one. (A worker may well be named "worker".)
    """
    meanings = [column_meaning(field) for field in cut[0]]
    if any(meanings.count(column) != 1 for column in columns):
        return None
    order = [meanings.index(column) for column in columns]
    for n, fields in enumerate(cut[1:], 2):
        for i in (order[0], order[-1]):
            if fields[i] == cut[0][i]:
                raise data_error(
                    path,
                    f"may be a header or data: line {n} has {quote_field(fields[i])} there too",
                    "rename that task or label",
                    1,
                )
    return order


def column_meaning(field: str) -> str | None:
    """The column that a word of a header stands for.

    >>> column_meaning("Worker ID"), column_meaning("true_label"), column_meaning("w17")
    ('worker', 'label', None)
    """
    word = re.sub("[^a-z]", "", field.lower()).removesuffix("id")
    return next((column for column, words in COLUMN_WORDS.items() if word in words), None)


def read_crowd(
    crowd_file: str | PathLike[str], truth_file: str | PathLike[str], name: str | None = None
) -> Crowd:
    """Read a crowd from lines `task worker label` and lines `task label`.

    Ids and labels are compared as text. A task has one truth, which may be repeated, and a worker
    one answer to a task: a second one is an error even if it is equal, because it would have to be
    dropped or counted twice. Answers to tasks without a truth are left out, as in the paper, and
    counted in `unjudged`.
    """
    answers = read_field_rows(Path(crowd_file), ("task", "worker", "label"))
    truths = read_field_rows(Path(truth_file), ("task", "label"))
    check_header(answers, truths)
    check_header(truths, answers)
    check_unique_answers(answers, 2)
    check_unique_answers(truths, 1, repeatable=True)
    truth = {row[0]: row[1] for row in truths.fields}
    judged = [(t, w, label) for t, w, label in answers.fields if t in truth]
    check_labels(answers, truths, judged, truth)
    all_tasks, all_workers = ({row[column] for row in answers.fields} for column in (0, 1))
    return assemble_crowd(
        Path(crowd_file).stem if name is None else name,
        (Annotation(task, worker, label == truth[task]) for task, worker, label in judged),
        unjudged=UnjudgedCounts(
            annotations=len(answers.fields) - len(judged),
            tasks=len(all_tasks - truth.keys()),
            workers=len(all_workers - {worker for _, worker, _ in judged}),
            unannotated=len(truth.keys() - all_tasks),
        ),
    )


def check_header(file: FieldRows, other: FieldRows) -> None:
    """Refuse a first line that may be a header with unknown names or data.

    It is data if one of its fields is a number, or if its label or task occurs elsewhere.
    """
    if not has_unknown_header(file):
        return
    first, *rest = file.fields
    beyond = rest + other.fields[has_unknown_header(other) :]
    if not any(row[0] == first[0] or row[-1] == first[-1] for row in beyond):
        columns = "task worker label" if len(first) == 3 else "task label"
        raise data_error(
            file.path,
            f"{quote_field(' '.join(first))} may be a header or data",
            f"write the line '{columns}' instead of it or above it",
            1,
        )


def has_unknown_header(file: FieldRows) -> bool:
    """Is the first line without a number, like a header, but not a known one?"""
    is_number = WHOLE_NUMBER.fullmatch
    return not file.header and any(not any(map(is_number, first)) for first in file.fields[:1])


def check_unique_answers(file: FieldRows, key: int, repeatable: bool = False) -> None:
    """Refuse a second line for the same first `key` fields; equal ones too, unless repeatable."""
    seen: dict[tuple[str, ...], int] = {}
    for row, fields in enumerate(file.fields):
        before = seen.setdefault(fields[:key], row)
        same = file.fields[before][-1] == fields[-1]
        if before != row and not (same and repeatable):
            whose = " by worker ".join(map(quote_field, fields[:key]))
            label, other = map(quote_field, (fields[-1], file.fields[before][-1]))
            earlier = "the same" if same else f"the other label {other}"
            raise data_error(
                file.path,
                f"task {whose} has label {label}, and {earlier} already in line "
                f"{file.line(before)}",
                "keep one of the two lines",
                file.line(row),
            )


def check_labels(
    answers: FieldRows, truths: FieldRows, judged: list[tuple[str, str, str]], truth: dict[str, str]
) -> None:
    """Check that some answer has a truth, and that there are at least two labels of each."""
    for file in (answers, truths):
        if not file.fields:
            raise data_error(file.path, "has a header and nothing else", "give a file with entries")
    if not judged:
        some, other = (quote_field(file.fields[0][0]) for file in (answers, truths))
        raise data_error(
            answers.path,
            f"no worker has a task with a truth: no task such as {some} is in "
            f"{truths.path.name!r}, which has tasks such as {other}",
            "give files that belong together, with the same ids",
        )
    given = {label for _, _, label in judged}
    wanted = {truth[task] for task, _, _ in judged}
    for file, labels, nouns in ((answers, given, "answers"), (truths, wanted, "truths")):
        if len(labels) == 1:
            raise data_error(
                file.path,
                f"all {nouns} of the joined tasks are {quote_field(*labels)}",
                "give two or more classes: one teaches nothing",
            )
    if not given & wanted:
        raise data_error(
            answers.path,
            f"no answer such as {quote_field(min(given))} is a truth such as "
            f"{quote_field(min(wanted))}",
            f"use the same labels as in {truths.path.name!r}",
        )


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
