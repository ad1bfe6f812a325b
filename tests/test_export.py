"""Exported segments of a log can be queried, and verified without the store."""

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bylot.cli import main
from bylot.errors import BylotError
from bylot.eventlog.export import export_router, verify_files
from bylot.store import Store, open_store
from handlers import SECOND
from retained_log import maintain, make_handler, play, short_segments, start_router
from stores import execute_statements, read_log

__all__ = ["short_segments"]


@pytest.fixture
def filled(store: Store, short_segments: None) -> Store:
    """A store with a log of several segments."""
    handler = start_router(store, keep_us=None)
    play(handler, SECOND, 200)
    handler.close()
    return store


def test_exported_files_have_all_events_and_are_verified(filled: Store, tmp_path: Path) -> None:
    ended = list(export_router(filled, "ward", tmp_path / "out"))
    assert len(ended) == len(filled.segments(1)) > 2
    files = list(export_router(filled, "ward", tmp_path / "out", everything=True))
    assert [one.path for one in files[:-1]] == [one.path for one in ended]
    log = read_log(filled, 1)
    rows = [row for one in files for row in parquet.read_table(one.path).to_pylist()]
    assert [row["raw"] for row in rows] == [one.body for one in log]
    assert [row["seal"] for row in rows] == [one.seal for one in log]
    assert json.loads(rows[1]["body"])["context"] in "ab"
    assert {name: one[:2] for name, one in verify_files((tmp_path / "out").iterdir()).items()} == {
        "ward.1": (0, log[-1].seq)
    }
    # the rest is written again, what has ended is not
    handler = make_handler(filled, keep_us=None)
    play(handler, 3_000 * SECOND, 40, seed=1)
    handler.close()
    times = {one.path: one.path.stat().st_mtime_ns for one in ended}
    assert len(list(export_router(filled, "ward", tmp_path / "out", everything=True))) > len(ended)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert verify_files((tmp_path / "out").iterdir())["ward.1"].last == filled.last_seq(1)


def test_a_changed_or_missing_file_is_found(filled: Store, tmp_path: Path) -> None:
    files = [one.path for one in export_router(filled, "ward", tmp_path / "out")]
    with pytest.raises(BylotError, match="do not follow"):
        verify_files([files[0], files[2]])
    table = parquet.read_table(files[1])
    for column, value in (("key", "x"), ("body", "{}"), ("raw", b"\x80"), ("of", 7), ("seal", b"")):
        values = table[column].to_pylist()
        values[3] = value
        index = table.schema.names.index(column)
        changed = table.set_column(index, column, pa.array(values, table.schema.types[index]))
        parquet.write_table(changed, files[1])
        with pytest.raises(BylotError, match="was changed"):
            verify_files(files)
    for part in (table.slice(1), table.slice(0, table.num_rows - 1)):
        parquet.write_table(part, files[1])
        with pytest.raises(BylotError, match="was changed"):
            verify_files(files)
    renamed = {**table.schema.metadata, b"router": b"other"}
    parquet.write_table(table.replace_schema_metadata(renamed), files[1])
    with pytest.raises(BylotError, match="was changed"):
        verify_files(files)
    parquet.write_table(table.slice(0, 0), files[1])
    with pytest.raises(BylotError, match="not an exported log"):
        verify_files(files)
    files[1].write_bytes(b"PAR1")
    with pytest.raises(BylotError, match="not a Parquet file, or is damaged"):
        verify_files(files)
    parquet.write_table(pa.table({"a": [1]}), files[1])
    with pytest.raises(BylotError, match="not an exported log"):
        verify_files(files)


def test_a_damaged_log_is_not_exported(filled: Store, address: str, tmp_path: Path) -> None:
    execute_statements(address, "UPDATE events SET at = at + 1 WHERE seq = 30")
    with pytest.raises(BylotError, match="event 30 of its log was changed"):
        list(export_router(filled, "ward", tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_exported_before_it_is_dropped_continues_in_what_is_kept(
    filled: Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "archive")
    assert main(["router", "export", "ward", "--store", address, "--out", out]) == 0
    handler = make_handler(filled)
    maintain(handler, 3_000 * SECOND)
    handler.close()
    assert filled.first_seq(1) > 0
    with closing(open_store(address, read_only=True)) as store:
        later = list(export_router(store, "ward", tmp_path / "later", everything=True))
    assert later[0].events.first == filled.first_seq(1)
    assert main(["router", "export", "ward", "--store", address, "--out", out, "--all"]) == 0
    assert main(["router", "verify", out]) == 0
    assert f"ward.1: events 0 to {filled.last_seq(1)}" in capsys.readouterr().out


def test_events_that_are_dropped_during_an_export_are_not_taken_for_exported(
    filled: Store, tmp_path: Path
) -> None:
    files = export_router(filled, "ward", tmp_path / "out")
    first = next(files)
    handler = make_handler(filled)
    maintain(handler, 3_000 * SECOND)
    handler.close()
    with pytest.raises(BylotError, match="were dropped"):
        list(files)
    assert list((tmp_path / "out").iterdir()) == [first.path]


def test_logs_of_two_stores_do_not_replace_each_other(filled: Store, tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/other.db")) as other:
        handler = start_router(other, keep_us=None)
        play(handler, SECOND, 200, seed=9)
        handler.close()
        folder = tmp_path / "out"
        one = {file.path for file in export_router(filled, "ward", folder, everything=True)}
        two = {file.path for file in export_router(other, "ward", folder, everything=True)}
        assert one.isdisjoint(two)
        assert set(folder.iterdir()) == one | two


def test_bad_places_are_explained(
    filled: Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    out = str(tmp_path / "file")
    assert main(["router", "export", "ward", "--store", address, "--out", out]) == 1
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["router", "verify", str(tmp_path / "empty")]) == 1
    assert "no exported files" in capsys.readouterr().err
