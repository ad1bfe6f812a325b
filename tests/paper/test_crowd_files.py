"""Files of answers and truths: every dialect reads the same, and errors name the mistake."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bylot.errors import DataError
from bylot_paper.crowd import Annotation, Crowd, CrowdCounts, UnjudgedCounts, assemble_crowd
from bylot_paper.crowd_sources import read_crowd

ANSWERS = [("7", "ann", "yes"), ("7", "bob", "no"), ("10", "ann", "no"), ("8", "cy", "no")]
TRUTHS = [("7", "yes"), ("10", "no"), ("11", "no")]
JOINED = [
    Annotation("7", "ann", True),
    Annotation("7", "bob", False),
    Annotation("10", "ann", True),
]


class Dialect(NamedTuple):
    """A way to write a file."""

    separator: str = "\t"
    end: str = "\n"
    header: bool = False
    mark: bool = False  # a byte order mark
    blank: int = 0  # lines at the end
    last: bool = True  # the last line is ended too

    def write(self, path: Path, rows: list[tuple[str, ...]]) -> Path:
        columns = ("task", "worker", "label") if len(rows[0]) == 3 else ("task", "label")
        lines = [self.separator.join(row) for row in [columns] * self.header + rows]
        text = self.end.join(lines) + self.end * (self.last + self.blank)
        path.write_bytes(text.encode("utf-8-sig" if self.mark else "utf-8"))
        return path


dialects = st.builds(
    Dialect,
    separator=st.sampled_from(["\t", ",", " ", "   ", ", ", "\t "]),
    end=st.sampled_from(["\n", "\r\n"]),
    header=st.booleans(),
    mark=st.booleans(),
    blank=st.integers(0, 3),
    last=st.booleans(),
)


def write_and_read_crowd(
    folder: Path,
    answers: str | bytes = "7 ann yes\n7 bob no\n",
    truths: str | bytes = "7 yes\n10 no\n",
) -> Crowd:
    """Write files with this content and read the crowd."""
    for name, content in (("answers.txt", answers), ("truths.txt", truths)):
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    return read_crowd(folder / "answers.txt", folder / "truths.txt")


def read_crowd_error(folder: Path, *, answers: str | bytes, truths: str | bytes) -> str:
    """The error message of one line about files with this content."""
    with pytest.raises(DataError) as caught:
        write_and_read_crowd(folder, answers, truths)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(one=dialects, other=dialects)
def test_every_dialect_reads_the_same(tmp_path: Path, one: Dialect, other: Dialect) -> None:
    crowd = read_crowd(
        one.write(tmp_path / "answers", list(ANSWERS)),
        other.write(tmp_path / "truths", list(TRUTHS)),
    )
    assert crowd == assemble_crowd("any", JOINED)
    assert (crowd.tasks, crowd.workers) == (("7", "10"), ("ann", "bob"))
    assert crowd.correct.tolist() == [True, False, True]
    assert crowd.unjudged == UnjudgedCounts(annotations=1, tasks=1, workers=1, unannotated=1)
    assert crowd.counts == CrowdCounts(workers=2, tasks=2, annotations=3, reliable=0)


ids = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters=',"'), min_size=1)
ids = ids.filter(lambda text: text not in ("task", "label"))  # words of the header


@settings(
    deadline=None,
    derandomize=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    one=dialects,
    other=dialects,
    labels=st.lists(ids, min_size=2, max_size=4, unique=True),
    tasks=st.lists(ids, min_size=2, max_size=6, unique=True),
    workers=st.lists(ids, min_size=2, max_size=5, unique=True),
)
def test_a_crowd_survives_writing_and_reading(
    tmp_path: Path,
    data: st.DataObject,
    one: Dialect,
    other: Dialect,
    labels: list[str],
    tasks: list[str],
    workers: list[str],
) -> None:
    one, other = one._replace(header=True), other._replace(header=True)  # the header is given
    truth = {task: labels[i % 2] for i, task in enumerate(tasks)}
    label = st.sampled_from(labels)
    answers = [(t, w, data.draw(label)) for t in tasks for w in workers if data.draw(st.booleans())]
    answers += [(tasks[0], "+1", labels[0]), (tasks[1], "+1", labels[1])]  # enough to be a crowd
    answers = list({row[:2]: row for row in answers}.values())
    shuffled = data.draw(st.permutations(answers))
    read_back = read_crowd(
        one.write(tmp_path / "answers", list(shuffled)),
        other.write(tmp_path / "truths", list(truth.items())),
    )
    marked = [Annotation(t, w, message == truth[t]) for t, w, message in answers]
    assert read_back == assemble_crowd("any", marked)
    wrong = [marked[0]._replace(correct=not marked[0].correct), *marked[1:]]
    assert read_back != assemble_crowd("any", wrong)


def test_quotes_keep_commas_together(tmp_path: Path) -> None:
    answers = '"Rome, Italy",ann,"say ""yes"""\n"Rome, Italy",bob,no\nOslo,bob,no\n'
    crowd = write_and_read_crowd(tmp_path, answers, '"Rome, Italy","say ""yes"""\nOslo,no\n')
    assert crowd.tasks == ("Oslo", "Rome, Italy")
    assert crowd.correct.tolist() == [True, True, False]


def test_labels_may_have_more_than_two_classes(tmp_path: Path) -> None:
    crowd = write_and_read_crowd(tmp_path, "1 a x\n2 a y\n3 a z\n1 b y\n", "1 x\n2 y\n3 x\n")
    assert crowd.correct.tolist() == [True, False, True, False]


def test_a_header_may_name_the_columns_in_another_order(tmp_path: Path) -> None:
    crowd = write_and_read_crowd(
        tmp_path, "Worker ID,Label,Task ID\nann,yes,7\nbob,no,7\nbob,no,8\n", "7 yes\n8 no\n"
    )
    assert (crowd.tasks, crowd.workers) == (("7", "8"), ("ann", "bob"))


def test_a_worker_may_be_called_worker(tmp_path: Path) -> None:
    crowd = write_and_read_crowd(
        tmp_path, "task worker label\n7 worker yes\n8 ann no\n", "7 yes\n8 no\n"
    )
    assert crowd.workers == ("ann", "worker")


@pytest.mark.parametrize("line", ["task ann yes", "7 ann label"])
def test_a_header_whose_words_are_also_ids_is_ambiguous(tmp_path: Path, line: str) -> None:
    message = read_crowd_error(
        tmp_path, answers=f"task worker label\n8 ann no\n{line}\n", truths="7 yes\n8 no\n"
    )
    assert "answers.txt, line 1: may be a header or data: line 3 has" in message


def test_a_header_with_unknown_column_names_is_refused(tmp_path: Path) -> None:
    answers, truths = "7 ann yes\n8 bob no\n", "7 yes\n8 no\n"
    message = read_crowd_error(tmp_path, answers="tâche qui quoi\n" + answers, truths=truths)
    assert "answers.txt, line 1" in message
    assert "'task worker label'" in message
    message = read_crowd_error(
        tmp_path, answers="tâche qui quoi\n" + answers, truths="tâche quoi\n" + truths
    )
    assert "answers.txt, line 1" in message
    message = read_crowd_error(tmp_path, answers=answers, truths="tâche quoi\n" + truths)
    assert "truths.txt, line 1" in message
    # The first line is a header
    kept = write_and_read_crowd(tmp_path, "task worker label\nt ann odd\n" + answers, truths)
    assert kept.unjudged.annotations == 1


@pytest.mark.parametrize(
    ("answers", "truths", "words"),
    [
        ("", "7 yes", ["answers.txt", "empty file", "give a file"]),
        ("\n \r\n\n", "7 yes", ["answers.txt", "empty file"]),
        ("task worker label\n", "7 yes\n", ["answers.txt", "a header and nothing else"]),
        ("7 a yes", "task,label", ["truths.txt", "a header and nothing else"]),
        (b"7\ta\tyes\n\xff\xfe\x00", "7 yes", ["answers.txt, line 2", "not UTF-8 text"]),
        ("7 a yes\n".encode("utf-16"), "7 yes", ["answers.txt, line 1", "not UTF-8 text"]),
        ("7 a yes\n8 b \0no", "7 yes", ["answers.txt, line 2", "zero byte", "plain text"]),
        ("7 a yes\n7 b\n8 b no\n", "7 yes", ["1 of 3 lines (line 2)", "3 fields", "correct or"]),
        ("7 a yes\n7 b no 1\n8 b no\n", "7 yes", ["1 of 3 lines (line 2)", "3 fields"]),
        ("7,a,yes\n7,,no\n8,b,no\n", "7 yes", ["1 of 3 lines (line 2)"]),
        ('7,a,yes\n7,"b,no\n8,b,no\n', "7 yes", ["1 of 3 lines (line 2)"]),
        ("7 a yes\n\n8 b no\n", "7 yes", ["1 of 3 lines (line 2)"]),
        ("7 a yes\n8 b no\n", "7 yes\n8\n9\n10\n11\n12\n13\n", ["6 of 7", "2, 3, 4, 5, 6, ..."]),
        ("7 a yes\n8 a no\n", "7 yes\n8 no\n7 no\n", ["truths.txt, line 3", "other label 'yes'"]),
        ("7 a yes\n8 a no\n7 a yes\n", "7 yes\n8 no\n", ["line 3", "the same", "line 1"]),
        ("7 a y\n7 a n\n", "7 y\n8 n\n", ["answers.txt, line 2", "'7' by worker 'a'", "keep one"]),
        ("task,worker,label\n7,a,y\n7,a,y\n", "7 y\n8 n\n", ["answers.txt, line 3", "in line 2"]),
        ("7 a yes\n8 a no\n", "t7 yes\nt8 no\n", ["no worker has a task with a truth", "'t7'"]),
        (
            "7 a yes\n8 a yes\n",
            "7 yes\n8 no\n",
            ["answers.txt", "all answers", "two or more classes"],
        ),
        (
            "7 a yes\n8 a no\n",
            "7 yes\n8 yes\n",
            ["truths.txt", "all truths", "two or more classes"],
        ),
        ("7 a yes\n8 a no\n", "7 1\n8 0\n", ["no answer such as 'no'", "same labels"]),
    ],
)
def test_invalid_files_give_an_error_of_one_line(
    tmp_path: Path, answers: str | bytes, truths: str | bytes, words: list[str]
) -> None:
    message = read_crowd_error(tmp_path, answers=answers, truths=truths)
    assert all(word in message for word in words), message


def test_a_missing_file_a_folder_and_an_unreadable_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "truths").write_text("7 yes\n")
    with pytest.raises(DataError, match=r"none: no such file; give the path"):
        read_crowd(tmp_path / "none", tmp_path / "truths")
    with pytest.raises(DataError, match="is a directory; give the path"):
        read_crowd(tmp_path, tmp_path / "truths")
    with pytest.raises(DataError, match="cannot be read"):
        read_crowd(tmp_path / "truths" / "beyond", tmp_path / "truths")
    with pytest.raises(DataError, match="no such file") as caught:
        read_crowd(tmp_path / "two\nlines", tmp_path / "truths")
    assert len(str(caught.value).splitlines()) == 1


def test_a_crowd_is_named_after_its_file(tmp_path: Path) -> None:
    write_and_read_crowd(tmp_path, "7 a yes\n8 a no\n", "7 yes\n8 no\n")
    (tmp_path / "answers.txt").rename(tmp_path / "birds.csv")
    crowd = read_crowd(tmp_path / "birds.csv", os.fspath(tmp_path / "truths.txt"))
    assert (crowd.name, crowd.synthetic) == ("birds", False)


def assert_reads_crowd_or_one_line_error(folder: Path, answers: bytes, truths: bytes) -> None:
    """Reading these files gives a crowd or an error of one line, nothing else."""
    try:
        crowd = write_and_read_crowd(folder, answers, truths)
    except DataError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        assert ": " in str(error)  # noqa: PT017
        assert "; " in str(error)  # noqa: PT017
    else:
        assert crowd.counts.annotations > 0


VALID_ANSWERS = b"task\tworker\tlabel\r\n7\tann\tyes\r\n7\tbob\tno\r\n8\tann\tno\r\n"
VALID_TRUTHS = b"7,yes\n8,no\n"
edits = st.lists(
    st.tuples(
        st.integers(0, len(VALID_ANSWERS)),
        st.integers(0, 5),
        st.sampled_from([b"", b"\n", b"\r", b"\t", b",", b" ", b'"', b"7", b"\xff", b"\0"])
        | st.binary(max_size=3)
        | st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
    max_size=4,
)


def mutate_bytes(good: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Valid bytes after some cuts and insertions."""
    for at, cut, insert in changes:
        good = good[:at] + insert + good[at + cut :]
    return good


@settings(
    deadline=None,
    derandomize=True,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(answers=edits, truths=edits)
def test_damaged_files_give_a_crowd_or_an_error_of_one_line(
    tmp_path: Path, answers: list[tuple[int, int, bytes]], truths: list[tuple[int, int, bytes]]
) -> None:
    assert_reads_crowd_or_one_line_error(
        tmp_path, mutate_bytes(VALID_ANSWERS, answers), mutate_bytes(VALID_TRUTHS, truths)
    )


@settings(
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    answers=st.binary() | st.text('ab1,\t \n\r"').map(str.encode),
    truths=st.binary() | st.text('ab1,\t \n\r"').map(str.encode),
)
def test_any_bytes_give_a_crowd_or_an_error_of_one_line(
    tmp_path: Path, answers: bytes, truths: bytes
) -> None:
    assert_reads_crowd_or_one_line_error(tmp_path, answers, truths)


def test_a_repeated_truth_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "answers.txt").write_text("7 a yes\n8 a no\n")
    (tmp_path / "truths.txt").write_text("7 yes\n8 no\n7 yes\n7 yes\n")
    (tmp_path / "once.txt").write_text("7 yes\n8 no\n")
    read = [
        read_crowd(tmp_path / "answers.txt", tmp_path / f"{name}.txt", "crowd")
        for name in ("truths", "once")
    ]
    assert read[0] == read[1]
