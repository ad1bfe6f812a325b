"""Broken problem files: every error names file, line and remedy, and no other error escapes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broken_files import BROKEN, VALID_FILES, BrokenFile
from bylot.errors import ProblemFileError
from bylot.problem_files import experts, read
from bylot.problem_files.document import MAX_PROBLEM_FILE_BYTES

fuzz_settings = settings(
    deadline=None,
    derandomize=True,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def read_error_message(path: Path, content: str | bytes, **others: str | bytes) -> str:
    """The error message of a file with this content, with others beside it."""
    for name, text in {**others, path.name: content}.items():
        data = text if isinstance(text, bytes) else text.encode()
        path.with_name(name.replace("_csv", ".csv")).write_bytes(data)
    with pytest.raises(ProblemFileError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: f"{one.form}: {one.what}")
def test_an_error_names_file_line_and_remedy(tmp_path: Path, broken: BrokenFile) -> None:
    path = tmp_path / f"pool.{broken.form}"
    message = read_error_message(path, broken.content)
    place = "" if broken.line is None else f", line {broken.line}"
    assert message.startswith(f"{path}{place}: ")
    _, fault, remedy = message.partition(broken.message)
    assert fault
    assert broken.remedy in remedy


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: f"{one.form}: {one.what}")
def test_the_line_of_an_error_moves_with_the_lines_above(
    tmp_path: Path, broken: BrokenFile
) -> None:
    message = read_error_message(tmp_path / f"pool.{broken.form}", "\n\n\n" + broken.content)
    place = "" if broken.line is None else f", line {broken.line + 3}"
    assert f"pool.{broken.form}{place}: " in message


def test_the_files_are_valid_before_they_are_broken(tmp_path: Path) -> None:
    for ending, content in VALID_FILES.items():
        (tmp_path / f"pool.{ending}").write_text(content)
        assert read(tmp_path / f"pool.{ending}").problem.size == 3


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("broken", [BROKEN[0], BROKEN[17], BROKEN[-1]], ids=str)
def test_lines_are_counted_with_any_line_ending(
    tmp_path: Path, broken: BrokenFile, end: str
) -> None:
    content = broken.content.replace("\n", end).encode("utf-8-sig")
    assert f", line {broken.line}: " in read_error_message(
        tmp_path / f"pool.{broken.form}", content
    )


NOT_PROBLEMS = {
    "empty": (b"", "empty file; start from the output of `bylot problem new`"),
    "blank": (b"\n  \n", "empty file"),
    "comments": (b"# nothing\n", "only comments"),
    "too long": (b"#" * (MAX_PROBLEM_FILE_BYTES + 1), "put the experts in a CSV file"),
    "not UTF-8": (
        VALID_FILES["yaml"].replace("seconds", "Sekunden f\xfcr A").encode("latin-1"),
        "line 4: not UTF-8 text",
    ),
    "UTF-16": (
        VALID_FILES["yaml"].encode("utf-16"),
        "line 1: not UTF-8 text; save the file as UTF-8",
    ),
    "zero byte": (
        VALID_FILES["yaml"].encode().replace(b"cat", b"c\0t", 1),
        "line 8: control character",
    ),
    "odd end of line": (
        VALID_FILES["yaml"].replace("seconds", "s\u2028x").encode(),
        "line 4: control character",
    ),
    "one word": (
        b"hello",
        "line 1: invalid problem 'hello' (text): expected a mapping with the keys draws",
    ),
    "a list": (b"[1, 2]", "line 1: invalid problem (a list): expected a mapping"),
    "brackets": (b"experts:\n" + b" [\n" * 100_000, "line 17: more than 16"),
    "laughs": (
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "line 1: anchor &a is not supported",
    ),
}


@pytest.mark.parametrize("what", NOT_PROBLEMS)
def test_a_file_that_is_not_a_problem_is_refused(tmp_path: Path, what: str) -> None:
    content, message = NOT_PROBLEMS[what]
    assert message in read_error_message(tmp_path / "pool.yaml", content)


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_brackets_without_end_are_refused(tmp_path: Path, ending: str) -> None:
    opening = "experts = " if ending == "toml" else ""
    message = read_error_message(tmp_path / f"pool.{ending}", "\n" + opening + "[" * 200_000)
    assert "more than 16 nested lists or mappings" in message
    assert ("line 2: " in message) == (ending == "json")


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "pool.txt").write_text("draws: 1")
    for name, message in {
        "none.yaml": "no such file; give the path",
        "folder.yaml": "is a directory; give the path",
        "pool.txt": "invalid file name suffix '.txt': expected one of .yaml, .yml, .toml, .json",
        "nul\0.yaml": "no such file",
        "x" * 300 + ".yaml": "cannot be read",
    }.items():
        with pytest.raises(ProblemFileError, match=message):
            read(tmp_path / name)


BY_CSV = """\
draws: 2
costs:
  usd: US dollars
experts:
  csv: pool.csv
  group: [team]
groups:
  big: {column: size, at_least: 5}
"""
CSV = "who,team,usd,size\nann,a,1,7\nbob,b,2,3\ncat,a,3,4\n"

BROKEN_CSV_FILES = {
    "ragged": ("bob,b,2,3", "bob,b,2", "pool.csv: 1 of 4 lines (line 3)", "correct or remove"),
    "quotes": ("bob,b,2,3", '"bob,b,2,3', "pool.csv: 1 of 4 lines (line 3)", "correct or"),
    "not a number": (
        "bob,b,2",
        "bob,b,two",
        "pool.csv, line 3: invalid experts[1].usd 'two'",
        "a finite number",
    ),
    "infinite": (
        "bob,b,2",
        "bob,b,inf",
        "pool.csv, line 3: invalid experts[1].usd 'inf'",
        "a finite number",
    ),
    "negative": ("bob,b,2", "bob,b,-2", "pool.csv, line 3: invalid experts[1].usd -2", "0 or more"),
    "huge": (
        "bob,b,2",
        "bob,b,1e150",
        "pool.csv, line 3: invalid cost 'usd' of expert",
        "another unit",
    ),
    "blank": ("bob,b,2", "bob,b,", "pool.csv, line 3: expert 'bob' has no cost 'usd'", "0 if"),
    "no name": ("bob,b", ",b", "pool.csv, line 3: 'who' is blank", "fill it in"),
    "twice": ("bob,b", "ann,b", "pool.csv, line 3: 'who' is 'ann', as in line 2", "keep one"),
    "no cost": ("usd", "eur", "pool.yaml, line 3: pool.csv has no column 'usd'", "columns"),
    "no group": ("team", "lab", "pool.yaml, line 6: pool.csv has no column 'team'", "columns"),
    "no column": ("size", "height", "pool.yaml, line 8: pool.csv has no column 'size'", "columns"),
    "same column": ("team", "usd", "pool.csv, line 1: columns 2 and 3", "rename one"),
    "no size": (
        "bob,b,2,3",
        "bob,b,2,",
        "pool.csv, line 3: invalid size ''",
        "to groups.big",
    ),
    "odd size": ("bob,b,2,3", "bob,b,2,L", "pool.csv, line 3: invalid size 'L'", "a number"),
    "empty group": (
        "ann,a,1,7",
        "ann,a,1,4",
        "pool.yaml, line 8: group 'big' has no",
        "change its rule",
    ),
    "known": ("bob,b", "bob,big", "pool.yaml, line 8: group 'big' is already in", "keep one"),
    "odd name": ("bob,b", "b\u200bob,b", "pool.csv, line 3: invalid experts[1].name", "printable"),
    "alone": ("bob,b,2,3\ncat,a,3,4\n", "", "pool.csv: invalid experts (1 entries)", "at least 2"),
    "empty": (CSV, "", "pool.csv: empty file", "one line per"),
    "decimal comma": (
        CSV,
        CSV.replace(",", ";").replace("bob;b;2", "bob;b;2,5"),
        "pool.csv, line 3: invalid experts[1].usd '2,5' (text)",
        "write 2.5: decimals have a point",
    ),
}


@pytest.mark.parametrize("what", BROKEN_CSV_FILES)
def test_an_error_in_a_csv_file_names_file_line_and_remedy(tmp_path: Path, what: str) -> None:
    old, new, message, remedy = BROKEN_CSV_FILES[what]
    assert CSV.count(old) == 1
    path = tmp_path / "pool.yaml"
    error = read_error_message(path, BY_CSV, pool_csv=CSV.replace(old, new)).replace(
        f"{tmp_path}/", ""
    )
    assert error.startswith(message)
    assert remedy in error.removeprefix(message)


def test_a_csv_file_can_have_a_byte_order_mark_and_tabs(tmp_path: Path) -> None:
    (tmp_path / "pool.csv").write_bytes(CSV.replace(",", "\t").encode("utf-8-sig"))
    (tmp_path / "pool.yaml").write_text(BY_CSV)
    assert read(tmp_path / "pool.yaml").groups["big"].members == ("ann",)


def test_a_csv_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    assert f"{path}, line 5: no CSV file" in read_error_message(path, BY_CSV)
    assert "line 2: not UTF-8 text" in read_error_message(path, BY_CSV, pool_csv=b"a,usd\n\xff,1\n")
    (tmp_path / "pool.csv").unlink()
    (tmp_path / "pool.csv").mkdir()
    assert "pool.csv: is a directory" in read_error_message(path, BY_CSV)


def test_a_group_that_two_columns_name_is_refused(tmp_path: Path) -> None:
    text = BY_CSV.replace("[team]", "[team, size]")
    message = read_error_message(
        tmp_path / "pool.yaml", text, pool_csv=CSV.replace("cat,a,3,4", "cat,a,3,b")
    )
    assert "pool.csv, line 4: group 'b' is in the columns 'team' and 'size'; rename one" in message


def assert_reads_or_refuses(path: Path, content: bytes) -> None:
    """A file with this content is read or refused with an error of one line."""
    path.write_bytes(content)
    try:
        read(path)
    except ProblemFileError as error:
        message, remedy = str(error), error.remedy or error.expected
    else:
        return
    assert message.startswith(str(path.parent))
    assert "\n" not in message
    assert remedy


endings = st.sampled_from(sorted(VALID_FILES))


@fuzz_settings
@given(content=st.binary(max_size=200), ending=endings)
def test_random_bytes_are_read_or_refused(tmp_path: Path, content: bytes, ending: str) -> None:
    assert_reads_or_refuses(tmp_path / f"pool.{ending}", content)


PIECES = [
    *"\t\n\r \0#:-,.%&*!|>@`'\"[]{}?=~\\",
    "\ufeff",
    "\u2028",
    "- ",
    "---\n",
    "<<: ",
    "no",
    "1e3",
]
PIECES += [
    ".inf",
    "nan",
    "1_000",
    "0x1",
    "!!int ",
    "&a ",
    "*a",
    '"""',
    "'''",
    "[[",
    "]]",
    "null",
    "é",
]
PIECES += ["9" * 400, "-1", "1e400", "\\ud800", "per: draw", "draws", "name: ", "2026-01-01"]


@fuzz_settings
@given(data=st.data(), ending=endings)
def test_valid_files_with_random_changes_are_read_or_refused(
    tmp_path: Path, data: st.DataObject, ending: str
) -> None:
    text = VALID_FILES[ending]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    assert_reads_or_refuses(tmp_path / f"pool.{ending}", text.encode("utf-8", "surrogatepass"))


@fuzz_settings
@given(data=st.data())
def test_csv_files_with_random_changes_are_read_or_refused(
    tmp_path: Path, data: st.DataObject
) -> None:
    text = CSV
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 6)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    (tmp_path / "pool.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert_reads_or_refuses(tmp_path / "pool.yaml", BY_CSV.encode())


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device that never ends")
def test_experts_in_a_file_that_never_ends_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "MAX_CSV_BYTES", 1_000)
    message = read_error_message(tmp_path / "pool.yaml", "draws: 1\nexperts: {csv: /dev/zero}\n")
    assert message == "/dev/zero: has more than 1,000 bytes; remove what is not needed"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "table.csv",
            b"id,ann\n1,0\n",
            "name a table of experts in it .*, and give a table of out",
        ),
        ("pool.xlsx", b"PK\x03\x04", "invalid file name suffix '.xlsx': expected one of .yaml"),
        ("pool.yaml", b"PK\x03\x04", "is a spreadsheet or an archive, not text"),
        ("pool.yaml", b"", "empty file; start from the output of `bylot problem new`"),
        ("folder", None, "is a directory; give the path of a file in it"),
        (
            "pool.yaml",
            b"floor: {a: 0,5}",
            "line 1: invalid key '5' .*; write 0.5 if it is one number",
        ),
        (
            "pool.yaml",
            b"floor: {a: 0,015}",
            "line 1: invalid key '015' .*; write 0.015 if it is one number",
        ),
        ("pool.yaml", b"floor: 0,5", "expected a .*; write 0.5: decimals have a point"),
    ],
)
def test_a_file_that_is_no_problem_is_named_for_what_it_is(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ProblemFileError, match=message):
        read(path)
