"""Tables of outcomes: one file or two, in any file style, and the errors of invalid files."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import hospital
from bylot.environments import Outcomes
from bylot.errors import DataError
from bylot.outcome_tables.outcomes import read_experts, read_outcomes
from bylot.outcome_tables.sheets import read_sheet
from tables import (
    OUTCOMES,
    QUESTIONS,
    SINGLE_FILE,
    fuzz_settings,
    tables_are_equal,
    write_and_read_outcomes,
    write_and_read_single_file,
)


def test_outcomes_are_joined_with_the_dimension_of_their_question(tmp_path: Path) -> None:
    read = write_and_read_outcomes(tmp_path)
    assert read.experts == ("ann", "bob", "cy")
    assert read.questions == ("7", "9", "10")  # as numbers, without the lung
    assert read.dimensions == ("heart", "skin")
    assert read.dimension.tolist() == [1, 0, 1]
    assert_array_equal(read.table, [[np.nan, np.nan, 0], [1, 0, np.nan], [0.25, 1, 1]])
    for array in (read.table, read.dimension):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    environment = Outcomes(read.table, read.dimension)
    assert_array_equal(environment.rounds(0, 1, 0).values[0, 0], [0.5, 0, 0])


def test_any_column_can_be_the_dimension(tmp_path: Path) -> None:
    assert write_and_read_outcomes(tmp_path, dimension="answer").dimensions == ("A", "B", "C")


def test_a_single_file_can_have_all_columns(tmp_path: Path) -> None:
    read = write_and_read_single_file(tmp_path, context="ward")
    assert (read.experts, read.questions) == (("ann", "bob"), ("7", "9", "10"))
    assert (read.dimensions, read.dimension.tolist()) == (("heart", "skin"), [1, 0, 1])
    assert (read.contexts, read.context.tolist()) == (("day", "night"), [0, 0, 1])
    assert_array_equal(read.table, [[np.nan, 1], [1, np.nan], [0.25, 0]])
    assert read.blanks.tolist() == [1, 1]
    assert read.unused == ("note",)


def test_without_a_column_there_are_neither_dimensions_nor_contexts(tmp_path: Path) -> None:
    read = write_and_read_single_file(tmp_path, dimension=None)
    assert (read.dimensions, read.contexts) == ((), ())
    assert read.dimension.tolist() == read.context.tolist() == [0, 0, 0]
    assert Outcomes(read.table, read.dimension).shape == (1, 2)


def test_contexts_may_be_in_the_file_of_questions(tmp_path: Path) -> None:
    write_and_read_outcomes(tmp_path)
    files = tmp_path / "outcomes.csv", tmp_path / "questions.csv"
    read = read_outcomes(*files, context="answer", experts=["cy", "ann"])
    assert (read.experts, read.contexts) == (("cy", "ann"), ("A", "B", "C"))
    assert read.unused == ("bob",)
    assert read.context.tolist() == [0, 1, 2]


def test_every_other_column_is_an_expert_unless_experts_are_named(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("qid,ann,specialty,bob\n1,1,x,0\n")
    assert read_outcomes(tmp_path / "few.csv").experts == ("ann", "bob")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (
            SINGLE_FILE,
            {"dimension": "speciality"},
            ["line 1: no column 'speciality'", "did you"],
        ),
        (
            SINGLE_FILE,
            {"context": "note"},
            ["whole.csv, line 2: question '9' has no 'note'", "fill it"],
        ),
        (
            SINGLE_FILE.replace("bob", "bod"),
            {},
            ["line 1: no column for 1 of the 2 experts", "'bod'?"],
        ),
        (
            SINGLE_FILE.replace("hard", "").replace(".25", "2"),
            {},
            ["line 3: invalid outcome of expert 'ann' '2'"],
        ),
    ],
)
def test_an_invalid_single_file_gives_an_error_of_one_line(
    tmp_path: Path, content: str, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        write_and_read_single_file(tmp_path, content, **options)
    assert all(word in str(caught.value) for word in words), caught.value
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_without_experts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("qid,specialty\n1,x\n")
    with pytest.raises(DataError, match=r"none\.csv, line 1: no column with the outcomes"):
        read_outcomes(tmp_path / "none.csv")


class FileStyle(NamedTuple):
    """A way to write a file."""

    separator: str
    end: str
    mark: bool  # a byte order mark
    blank: int  # lines at the end
    first: str  # what the column of ids is called
    order: int  # of lines

    def write(self, content: str) -> bytes:
        header, *lines = [line.split(",") for line in content.splitlines()]
        np.random.default_rng(self.order).shuffle(lines)
        table = [[self.first, *header[1:]], *lines]
        text = self.end.join(self.separator.join(line) for line in table)
        return (text + self.end * self.blank).encode("utf-8-sig" if self.mark else "utf-8")


file_styles = st.builds(
    FileStyle,
    separator=st.sampled_from(["\t", ",", ", ", " ,", "\t "]),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    blank=st.integers(0, 3),
    first=st.sampled_from(["qid", "", "question", "Frage"]),
    order=st.integers(0, 9),
)


@fuzz_settings
@given(one=file_styles, other=file_styles)
def test_every_file_style_reads_the_same(tmp_path: Path, one: FileStyle, other: FileStyle) -> None:
    assert tables_are_equal(
        write_and_read_outcomes(tmp_path, one.write(OUTCOMES), other.write(QUESTIONS)),
        write_and_read_outcomes(tmp_path),
    )


ids = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters=',"'), min_size=1)

results = st.sampled_from([0.0, 1.0, np.nan]) | st.floats(0, 1)


@fuzz_settings
@given(data=st.data(), style=file_styles)
def test_a_table_survives_writing_and_reading(
    tmp_path: Path, data: st.DataObject, style: FileStyle
) -> None:
    names = data.draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    questions_drawn = data.draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    labels = {question: data.draw(st.sampled_from("xyz")) for question in questions_drawn}
    table = np.array([[data.draw(results) for _ in names] for _ in questions_drawn])
    header = ",".join(["any", *(f"e{name}" for name in names)])  # not a number
    lines = [
        ",".join([question, *("" if np.isnan(x) else repr(float(x)) for x in row)])
        for question, row in zip(questions_drawn, table, strict=True)
    ]
    read = write_and_read_outcomes(
        tmp_path,
        style._replace(first="any").write("\n".join([header, *lines])),
        "\n".join(["any,specialty", *map(",".join, labels.items())]),
    )
    order = [questions_drawn.index(question) for question in read.questions]
    assert read.experts == tuple(f"e{name}" for name in names)
    assert sorted(order) == list(range(len(questions_drawn)))
    assert_array_equal(read.table, table[order])
    assert [read.dimensions[n] for n in read.dimension] == [labels[q] for q in read.questions]


def test_quotes_keep_commas_together(tmp_path: Path) -> None:
    read = write_and_read_outcomes(
        tmp_path, 'q,"Smith, ann",bob\n"a, b",1,0\n', 'q,specialty\n"a, b","x, y"\n'
    )
    assert (read.experts, read.questions, read.dimensions) == (
        ("Smith, ann", "bob"),
        ("a, b",),
        ("x, y",),
    )


@pytest.mark.parametrize(
    ("outcomes", "questions", "words"),
    [
        ("", QUESTIONS, ["outcomes.csv: empty file"]),
        ("qid,ann\n", QUESTIONS, ["outcomes.csv", "only a header"]),
        ("qid\n7\n", QUESTIONS, ["outcomes.csv, line 1", "two columns or more"]),
        ('qid,"ann\n7,1\n', QUESTIONS, ["outcomes.csv, line 1", "not a header"]),
        ("qid,ann,ann\n7,1,0\n", QUESTIONS, ["line 1: columns 2 and 3 are both called 'ann'"]),
        ("qid,ann,\n7,1,0\n", QUESTIONS, ["line 1: column 3 has no name"]),
        ("9,1,0\n7,1,0\n", QUESTIONS, ["line 1: '1,0' are outcomes", "add a header"]),
        ("qid,ann\n7,1\n9\n10,1,1\n", QUESTIONS, ["2 of 4 lines (line 3, 4)", "2 fields"]),
        ("qid,ann\n7,1\n\n9,1\n", QUESTIONS, ["1 of 4 lines (line 3)", "correct or remove"]),
        ("qid,ann\n7,1\n,1\n", QUESTIONS, ["outcomes.csv, line 3: 'qid' is blank", "fill it in"]),
        (",ann\n7,1\n,1\n", QUESTIONS, ["outcomes.csv, line 3: the name is blank"]),
        ("qid,ann\n7,1\n9,1\n7,0\n", QUESTIONS, ["line 4: 'qid' is '7', as in line 2", "keep one"]),
        ("qid,ann\n7,1\n8,1\n", QUESTIONS, ["line 3: question '8' is not in 'questions.csv'"]),
        (
            "qid,ann,bob\n7,1,maybe\n",
            QUESTIONS,
            ["line 2: invalid outcome of expert 'bob' 'maybe'", "from 0 to 1", "pass or fail"],
        ),
        (
            "qid,ann\n7,1\n9,1.5\n",
            QUESTIONS,
            ["outcomes.csv, line 3: invalid outcome of expert 'ann' '1.5'"],
        ),
        ("qid,ann\n7,-1\n", QUESTIONS, ["'-1'", "nothing if the expert did not answer"]),
        ("qid,ann\n7,nan\n", QUESTIONS, ["invalid outcome of expert 'ann' 'nan'"]),
        ("qid,ann\n7,1\n9,\0\n", QUESTIONS, ["outcomes.csv, line 3", "zero byte"]),
        (b"qid,ann\n7,1\n\xff,1\n", QUESTIONS, ["outcomes.csv, line 3", "not UTF-8 text"]),
        (OUTCOMES, "qid,topic\n7,x\n", ["questions.csv, line 1: no column 'specialty'"]),
        (OUTCOMES, "qid,Specialty\n7,x\n", ["did you mean 'Specialty'?"]),
        (OUTCOMES, "qid,specialty\n7,x\n9,\n", ["questions.csv, line 3: question '9' has no"]),
        ("ann,bob\n1,0\n1,1\n", QUESTIONS, ["'ann' is '1', as in line 2", "its own id or name in"]),
        (OUTCOMES, "qid,specialty\n7,x\n7,x\n", ["questions.csv, line 3", "as in line 2"]),
    ],
)
def test_invalid_files_give_an_error_of_one_line(
    tmp_path: Path, outcomes: str | bytes, questions: str | bytes, words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        write_and_read_outcomes(tmp_path, outcomes, questions)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert all(word in message for word in words), message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_and_read_outcomes(tmp_path)
    with pytest.raises(DataError, match=r"none\.csv: no such file; give the path"):
        read_outcomes(tmp_path / "outcomes.csv", tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a directory"):
        read_experts(tmp_path)


# The hospital


def test_the_hospital_has_the_known_counts() -> None:
    read = hospital.read_outcome_table()
    assert (len(read.experts), len(read.questions), len(read.dimensions)) == (39, 816, 8)
    assert np.isnan(read.table).sum() == 1


def test_the_hospital_has_the_published_accuracies() -> None:
    read, published = hospital.read_outcome_table(), read_sheet(hospital.find_folder() / "V.csv")
    assert published.columns[2:] == read.experts
    for label, questions, *accuracy in published.fields:
        own = read.table[read.dimension == read.dimensions.index(label)]
        assert len(own) == int(questions)
        assert_allclose(np.nanmean(own, axis=0), [float(x) for x in accuracy], atol=5.1e-5)
    known = read_experts(hospital.find_folder() / "experts.csv", read.experts)
    assert_allclose(np.nanmean(read.table, axis=0), known["accuracy"], atol=5.1e-5)
    assert_array_equal((~np.isnan(read.table)).sum(axis=0), known["n_answered"])
    assert len(set(known["group"])) == 12


WORDS = {
    "1": ["true", "Yes", "PASS", "passed", "ok", "correct", "right", "success"],
    "0": ["false", "No", "FAIL", "failed", "wrong", "incorrect", "failure"],
}


@pytest.mark.parametrize(("value", "word"), [(v, word) for v in WORDS for word in WORDS[v]])
def test_a_word_for_pass_or_fail_is_an_outcome(tmp_path: Path, value: str, word: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"qid,ann,bob\n7,{word},0.5\n9,yes,\n")
    assert_array_equal(
        read_outcomes(path, dimension=None).table, [[float(value), 0.5], [1, np.nan]]
    )


def test_words_and_numbers_in_one_column_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("qid,ann,bob\n7,1,0.5\n9,yes,1\n")
    expected = "outcomes of expert 'ann' are words and numbers, such as 'yes' and '1'; write"
    with pytest.raises(DataError, match=expected):
        read_outcomes(path, dimension=None)


def test_semicolons_separate_fields_and_decimal_commas_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('qid;ann;"b;o"\n7;0.5;1\n')
    read = read_outcomes(path, dimension=None)
    assert (read.experts, read.table.tolist()) == (("ann", "b;o"), [[0.5, 1.0]])
    for text in ("qid;ann;bob\n7;0,5;1\n", 'qid,ann,bob\n7,"0,5",1\n'):
        path.write_text(text)
        expected = (
            r"line 2: invalid outcome of expert 'ann' '0,5'.*; write 0.5: decimals have a point"
        )
        with pytest.raises(DataError, match=expected):
            read_outcomes(path, dimension=None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pool.yaml", b"draws: 2\nexperts: [a]\n", "a problem file, not a table; give the path"),
        ("pool.xlsx", b"PK\x03\x04\x00\xff", "is a spreadsheet or an archive, not text; save the"),
        ("pool.xls", b"\xd0\xcf\x11\xe0\xa1", "is a spreadsheet or an archive, not text; save the"),
        ("pool.csv", b"", "empty file; give a file with one line per entry"),
        ("folder.csv", None, "is a directory; give the path of a file in it"),
    ],
)
def test_a_file_that_is_no_table_is_named_for_what_it_is(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_outcomes(path, dimension=None)
