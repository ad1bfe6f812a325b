"""The paper's crowd, TREC 2010, known by its sums and counts; `fetch` downloads it."""

import hashlib
from os import PathLike
from pathlib import Path

from bylot.data.annotations import read
from bylot.data.crowd import Counts, Crowd
from bylot.data.lines import fault
from bylot.errors import DataError

CROWD, TRUTH = "trec_crowd.txt", "trec_truth.txt"
SUMS = {
    CROWD: "821141b1e95b1ff516ebccf6869f2ac88ca93035d6991b8039d76275866de402",
    TRUTH: "405b4ff78e79b912252f19ff68116e71abe3a21c2051c7c701e7a16acbeae3e4",
}
DIGEST = "603edac248391f30d3a11b28545c1ea11cdf631d7ee3b8732998e48bc5a63f69"  # of the joined crowd
COUNTS = Counts(workers=677, tasks=2275, annotations=12863, reliable=270)  # the paper's
URL = "https://raw.githubusercontent.com/zhangyuc/SpectralMethodsMeetEM/master/src/"


def read_trec(folder: str | PathLike[str]) -> Crowd:
    """The crowd of trec_crowd.txt and trec_truth.txt in a folder, if they are the paper's."""
    for name, wanted in SUMS.items():
        check_sum(Path(folder) / name, wanted)
    return with_counts(read(Path(folder) / CROWD, Path(folder) / TRUTH, name="trec"), COUNTS)


def check_sum(path: Path, wanted: str) -> None:
    """Refuse a file that is not the one we know."""
    try:
        got = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        remedy = f"download it from {URL}{path.name} into that folder"
        raise fault(path, "no such file, or it cannot be read", remedy) from None
    if got != wanted:
        what = f"is not the paper's file: its sha256 is {got}, wanted {wanted}"
        raise fault(path, what, f"download it again, unchanged, from {URL}{path.name}")


def with_counts(crowd: Crowd, wanted: Counts) -> Crowd:
    """The crowd itself, if it has the counts that are wanted."""
    pairs = zip(Counts._fields, crowd.counts, wanted, strict=True)
    wrong = [
        f"{got:,} {noun} where {want:,} are wanted" for noun, got, want in pairs if got != want
    ]
    if wrong:
        raise DataError(
            f"crowd {crowd.name!r} has {', '.join(wrong)}; download its files again from {URL}"
        )
    return crowd
