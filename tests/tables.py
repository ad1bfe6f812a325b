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

WHOLE = (
    "qid,specialty,ward,ann,bob,note\n9,heart,day,1,,\n10,skin,night,.25,0,hard\n7,skin,day,,1,\n"
)

fuzz = settings(
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def written(
    folder: Path,
    outcomes: str | bytes = OUTCOMES,
    questions: str | bytes = QUESTIONS,
    dimension: str = "specialty",
) -> OutcomeTable:
    """What comes of files with this content."""
    for name, content in (("outcomes.csv", outcomes), ("questions.csv", questions)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_outcomes(folder / "outcomes.csv", str(folder / "questions.csv"), dimension)


def whole(folder: Path, content: str = WHOLE, **options: Any) -> OutcomeTable:
    """What comes of one file that says everything."""
    (folder / "whole.csv").write_text(content)
    return read_outcomes(folder / "whole.csv", experts=("ann", "bob"), **options)


def experts(folder: Path, content: str | bytes, *names: str) -> dict[str, list[object]]:
    """The columns of a file of experts with this content, as lists."""
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "experts.csv").write_bytes(data)
    columns = read_experts(folder / "experts.csv", names or None)
    return {name: column.tolist() for name, column in columns.items()}


def same(one: OutcomeTable, other: OutcomeTable) -> bool:
    """Is all that was read the same?"""
    arrays = [(one.table, other.table), (one.dimension, other.dimension)]
    names = [(t.experts, t.questions, t.dimensions, t.unasked) for t in (one, other)]
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

anything = st.binary() | st.text('ab1.,\t \n\r"').map(str.encode)


def damaged(good: str, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Good content after some cuts and insertions."""
    content = good.encode()
    for at, cut, insert in changes:
        content = content[:at] + insert + content[at + cut :]
    return content


def one_line(error: DataError) -> None:
    """What and where, and what to do."""
    assert len(str(error).splitlines()) == 1
    assert ": " in str(error)
    assert "; " in str(error)
