"""Tables of outcomes and of experts, written and read again, and ways to damage them."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from bylot.errors import DataError
from bylot.outcome_tables.outcomes import OutcomeTable, read_experts, read_outcomes

OUTCOMES = "qid,ann,bob,cy\n9,1,0,\n10,0.25,1,1\n7,,,0\n"

QUESTIONS = "qid,specialty,answer,note\n7,skin,A,\n9,heart,B,\n10,skin,C,hard\n11,lung,A,\n"

SINGLE_FILE = (
    "qid,specialty,ward,ann,bob,note\n9,heart,day,1,,\n10,skin,night,.25,0,hard\n7,skin,day,,1,\n"
)

fuzz_settings = settings(
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write_and_read_outcomes(
    folder: Path,
    outcomes: str | bytes = OUTCOMES,
    questions: str | bytes = QUESTIONS,
    dimension: str = "specialty",
) -> OutcomeTable:
    """Write files with this content and read the outcomes."""
    for name, content in (("outcomes.csv", outcomes), ("questions.csv", questions)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_outcomes(folder / "outcomes.csv", str(folder / "questions.csv"), dimension)


def write_and_read_single_file(
    folder: Path, content: str = SINGLE_FILE, **options: Any
) -> OutcomeTable:
    """Write one file with all columns and read the outcomes."""
    (folder / "whole.csv").write_text(content)
    return read_outcomes(folder / "whole.csv", experts=("ann", "bob"), **options)


def write_and_read_experts(
    folder: Path, content: str | bytes, *names: str
) -> dict[str, list[object]]:
    """Write a file of experts with this content and return its columns as lists."""
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "experts.csv").write_bytes(data)
    columns = read_experts(folder / "experts.csv", names or None)
    return {name: column.tolist() for name, column in columns.items()}


def tables_are_equal(one: OutcomeTable, other: OutcomeTable) -> bool:
    """Whether two tables have the same names and values."""
    arrays = [(one.table, other.table), (one.dimension, other.dimension)]
    names = [(t.experts, t.questions, t.dimensions) for t in (one, other)]
    return names[0] == names[1] and all(np.array_equal(a, b, equal_nan=True) for a, b in arrays)


# Any bytes


edits = st.lists(
    st.tuples(
        st.integers(0, len(QUESTIONS)),
        st.integers(0, 5),
        st.sampled_from([b"", b"\n", b"\r", b"\t", b",", b" ", b'"', b"7", b"\xff", b"\0"])
        | st.binary(max_size=3)
        | st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
    max_size=4,
)

any_bytes = st.binary() | st.text('ab1.,\t \n\r"').map(str.encode)


def damage_content(valid: str, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Valid content after some cuts and insertions."""
    content = valid.encode()
    for at, cut, insert in changes:
        content = content[:at] + insert + content[at + cut :]
    return content


def assert_one_line_error(error: DataError) -> None:
    """The error is one line that has a place, a mistake and a remedy."""
    assert len(str(error).splitlines()) == 1
    assert ": " in str(error)
    assert "; " in str(error)
