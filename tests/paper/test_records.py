"""Records on disk: the same bytes in any order, nothing lost to a kill, clear refusals."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from bylot.errors import BylotError
from bylot.numerics.compile_cache import PACKAGE_FOLDER
from bylot.policies import POLICY_CLASSES
from bylot_paper.records import (
    RECORD_SCHEMA,
    RECORD_SOURCES,
    Records,
    RecordStore,
    RunFolder,
    code_digest,
    read_records,
)

RUN: dict[str, Any] = {
    "form": "bylot-run",
    "version": 5,
    "data": {"name": "made-up", "digest": "17", "synthetic": True},
    "rounds": 1_000,
    "window": 50,
    "code": "4f1d",
}


def make_record(n: int, **changes: Any) -> dict[str, Any]:
    """The record of cell n, a function of n; odd ones have no proxy and no limits."""
    rng = np.random.default_rng(n)
    points = 200 if n % 3 else 50
    values: dict[str, Any] = {}
    for name, kind in RECORD_SCHEMA.items():
        if kind == pl.String:
            values[name] = f"crowd/tight/regime/omd/N=3/seed={n:02d}" if name == "cell" else "crowd"
        elif kind == pl.Int64:
            values[name] = n
        elif kind == pl.Float64:
            values[name] = rng.random()
        elif kind == pl.Boolean:
            values[name] = n % 2 == 0
        else:
            values[name] = np.arange(points) if name == "curve_t" else rng.random(points)
    if n % 2:
        cleared = ["workload_bound", "expert_bound", "regret_proxy", "curve_r1_proxy"]
        values |= dict.fromkeys(cleared)
    return values | changes


def record_jobs(folder: Path, jobs: Iterable[Iterable[int]]) -> Records:
    """Record jobs of some cells each, and merge."""
    with RecordStore(folder, RUN) as store:
        for i, cells in enumerate(jobs):
            store.add(f"scenario {i}", [make_record(n) for n in cells])
        return store.merge()


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    records = record_jobs(tmp_path / "new" / "run", [[3, 4], [1, 2]])
    assert records.cells.schema == RECORD_SCHEMA
    assert records.cells.equals(pl.read_parquet(tmp_path / "new" / "run" / "records.parquet"))
    assert records.run == RUN == json.loads((tmp_path / "new" / "run" / "run.json").read_text())
    for given, stored in zip(
        map(make_record, [1, 2, 3, 4]), records.cells.iter_rows(named=True), strict=True
    ):
        for name, value in given.items():
            assert stored[name] == (value.tolist() if isinstance(value, np.ndarray) else value)


def test_the_bytes_depend_only_on_the_cells(tmp_path: Path) -> None:
    record_jobs(tmp_path / "one", [range(40)])
    cells = list(range(40))
    random.Random(3).shuffle(cells)
    record_jobs(tmp_path / "other", [[n] for n in cells[:20]])  # merged half-way, then some again
    record_jobs(tmp_path / "other", [cells[30:], cells[15:30]])
    expected = (tmp_path / "one" / "records.parquet").read_bytes()
    assert (tmp_path / "other" / "records.parquet").read_bytes() == expected
    record_jobs(tmp_path / "less", [range(39)])
    assert (tmp_path / "less" / "records.parquet").read_bytes() != expected


def test_known_cells_are_those_of_the_table_and_of_the_parts(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1, 2]])
    with RecordStore(tmp_path, RUN) as store:
        store.add("scenario", [make_record(5)])
        store.add("scenario", [make_record(6)])  # the same job, asked for another of its cells
        assert store.list_known_cells() == {make_record(n)["cell"] for n in (1, 2, 5, 6)}
        assert read_records(tmp_path).cells["seed"].to_list() == [1, 2, 5, 6]
        assert store.merge().cells["seed"].to_list() == [1, 2, 5, 6]
    assert not (tmp_path / "parts").exists()


def test_scalars_of_numpy_and_whole_numbers_are_numbers(tmp_path: Path) -> None:
    with RecordStore(tmp_path, RUN) as store:
        store.add(
            "scenario", [make_record(1, seed=np.int64(7), reward=np.float64(0.25), outside=0)]
        )
        found = store.merge().cells.row(0, named=True)
    assert (found["seed"], found["reward"], found["outside"]) == (7, 0.25, 0.0)


def test_a_cell_with_two_results_is_an_error(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1, 2]])
    with RecordStore(tmp_path, RUN) as store:
        store.add("again", [make_record(1)])
        store.merge()
        store.add("otherwise", [make_record(1, reward=0.5)])
        with pytest.raises(BylotError, match="seed=01 was recorded twice"):
            store.merge()


def test_measured_times_may_differ(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1, 2]])
    with RecordStore(tmp_path, RUN) as store:
        store.add("slower", [make_record(1, micros=1e6)])
        assert len(store.merge().cells) == 2


def test_a_row_must_have_all_columns_and_no_others(tmp_path: Path) -> None:
    with RecordStore(tmp_path, RUN) as store:
        with pytest.raises(BylotError, match="speed"):
            store.add("scenario", [make_record(1, speed=3)])
        with pytest.raises(BylotError, match="'policy'"):
            store.add("scenario", [{k: v for k, v in make_record(1).items() if k != "policy"}])
        assert store.list_known_cells() == set()


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "zeroed"])
def test_a_damaged_part_is_set_aside_and_its_cells_are_missing(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordStore(tmp_path, RUN) as store:
        store.add("good", [make_record(1)])
        store.add("bad", [make_record(2)])
        (bad,) = (tmp_path / "parts").glob("bad-*")
        content = bad.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        zeroed = bytes(len(content))
        damaged = {"cut": content[:middle], "empty": b"", "flipped": flipped, "zeroed": zeroed}
        bad.write_bytes(damaged[damage])
        assert read_records(tmp_path).cells["seed"].to_list() == [1]
        assert bad.exists()  # reading changes nothing
        assert f"skipping damaged part {bad}" in capsys.readouterr().err
        assert store.list_known_cells() == {make_record(1)["cell"]}
        assert f"renamed damaged part {bad}" in capsys.readouterr().err
        store.add("bad", [make_record(2)])
        assert store.merge().cells["seed"].to_list() == [1, 2]


def test_a_damaged_table_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1, 2]])
    path = tmp_path / "records.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with (
        RecordStore(tmp_path, RUN) as store,
        pytest.raises(BylotError, match=r"damaged.*delete it"),
    ):
        store.list_known_cells()
    with pytest.raises(BylotError, match="damaged"):
        read_records(tmp_path)


def test_a_run_with_other_settings_is_refused_and_fresh_deletes_it(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1]])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "parts").mkdir(exist_ok=True)
    (tmp_path / "parts" / "notes.txt").write_text("mine")
    other = RUN | {"rounds": 5, "data": RUN["data"] | {"digest": "18"}}
    message = (
        r"data digest '17' \(now '18'\), rounds 1000 \(now 5\); give another --out, or --fresh"
    )
    with pytest.raises(BylotError, match=message):
        RecordStore(tmp_path, other)
    with RecordStore(tmp_path, other, fresh=True) as store:
        assert store.list_known_cells() == set()
    assert read_records(tmp_path).run == other
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "parts" / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_files_is_used_unless_it_has_records_of_unknown_origin(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    record_jobs(tmp_path, [[1]])
    (tmp_path / "run.json").unlink()
    for fresh in (False, True):
        with pytest.raises(BylotError, match=r"no run\.json"):
            RecordStore(tmp_path, RUN, fresh=fresh)
    assert (tmp_path / "records.parquet").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"form": "other"}', '{"form": "bylot-run"}'])
def test_an_invalid_manifest_is_refused(tmp_path: Path, text: str) -> None:
    record_jobs(tmp_path, [[1]])
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(BylotError, match="another --out"):
        RecordStore(tmp_path, RUN, fresh=True)
    with pytest.raises(BylotError, match=r"run\.json"):
        read_records(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for position in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/bylot")):
        with pytest.raises(BylotError, match=f"{position} cannot be written: .*another --out"):
            RecordStore(position, RUN)


def test_a_full_disk_is_an_error_of_one_line_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_with_full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with RecordStore(tmp_path, RUN) as store:
        monkeypatch.setattr(os, "fsync", fail_with_full_disk)
        with pytest.raises(BylotError, match="No space left"):
            store.add("scenario", [make_record(1)])
        monkeypatch.undo()
        assert not list((tmp_path / "parts").iterdir())


def test_the_error_of_reading_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BylotError, match="is not a folder; run `bylot reproduce"):
        read_records(tmp_path / "nowhere")
    with pytest.raises(BylotError, match=r"has no run\.json"):
        read_records(tmp_path)


def test_a_part_that_is_merged_during_reading_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordStore(tmp_path, RUN) as store:
        store.add("scenario", [make_record(1)])
        listed = store.list_parts()
        store.merge()
    monkeypatch.setattr(RunFolder, "list_parts", lambda self: listed)
    assert read_records(tmp_path).cells["seed"].to_list() == [1]
    assert capsys.readouterr().err == ""


WRITER = """
import sys
from pathlib import Path
import test_records as t
with t.RecordStore(Path(sys.argv[1]), t.RUN) as store:
    print(len(store.list_known_cells()), flush=True)
    for n in range(10_000):
        store.add(f"scenario {n}", [t.make_record(n)])
"""


def start_writer_process(folder: Path) -> "subprocess.Popen[str]":
    """Start a process that records one cell after the other, for a long time."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", WRITER, str(folder)]
    return subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True)


def test_the_records_of_a_killed_process_can_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    for least in (5, 30):  # killed, continued, and killed again
        with start_writer_process(folder) as process:
            while len(list(folder.glob("parts/*.parquet"))) < least:
                assert process.poll() is None
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    # Truncated by the kill
    (folder / "parts" / ".scenario-1.parquet.4d.bylot-part").write_bytes(b"PAR1")
    with RecordStore(folder, RUN) as store:
        known = store.list_known_cells()
        assert len(known) >= 30
        cells = range(len(known) + 5)
        store.add("rest", [make_record(n) for n in cells if make_record(n)["cell"] not in known])
        store.merge()
    assert not (folder / "parts").exists()
    assert capsys.readouterr().err == ""  # no part was damaged
    record_jobs(tmp_path / "undisturbed", [cells])
    expected = (tmp_path / "undisturbed" / "records.parquet").read_bytes()
    assert (folder / "records.parquet").read_bytes() == expected


def test_a_crash_before_the_parts_are_removed_changes_nothing(
    tmp_path: Path,
) -> None:
    with RecordStore(tmp_path, RUN) as store:
        store.add("scenario", [make_record(1), make_record(2)])
        shutil.copytree(tmp_path / "parts", tmp_path / "kept")
        store.merge()
    expected = (tmp_path / "records.parquet").read_bytes()
    shutil.copytree(tmp_path / "kept", tmp_path / "parts", dirs_exist_ok=True)
    record_jobs(tmp_path, [])
    assert (tmp_path / "records.parquet").read_bytes() == expected


def test_two_processes_cannot_write_to_one_folder(tmp_path: Path) -> None:
    with start_writer_process(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BylotError, match=f"in use by process {process.pid} on .*another --out"):
            RecordStore(tmp_path, RUN)
        assert isinstance(read_records(tmp_path), Records)  # but others may read
        process.kill()
    with RecordStore(tmp_path, RUN):  # the lock died with its process
        pass


def test_a_refused_store_releases_the_folder(tmp_path: Path) -> None:
    record_jobs(tmp_path, [[1]])
    with pytest.raises(BylotError, match="other settings"):
        RecordStore(tmp_path, RUN | {"rounds": 5})
    with RecordStore(tmp_path, RUN):
        pass


def test_the_code_digest_depends_only_on_contents_and_names(tmp_path: Path) -> None:
    for part in RECORD_SOURCES:
        path = tmp_path / part if part.endswith(".py") else tmp_path / part / "a.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {part}")
    before = code_digest(tmp_path)
    os.utime(tmp_path / "bylot/metrics.py", (1, 1))
    (tmp_path / "bylot/cli.py").touch()
    assert code_digest(tmp_path) == before
    for part in ("bylot/optima/a.py", "bylot/simulation.py"):
        (tmp_path / part).write_text("# changed")
        assert code_digest(tmp_path) != before
        before = code_digest(tmp_path)
    problem = tmp_path / "bylot" / "problem"
    (problem / "a.py").rename(problem / "b.py")
    assert code_digest(tmp_path) != before


def test_every_source_of_records_exists() -> None:
    for part in RECORD_SOURCES:
        assert (PACKAGE_FOLDER.parent / part).exists(), part


def test_the_modules_of_all_policies_and_limits_are_sources_of_records() -> None:
    modules = [kind.__module__ for kind in POLICY_CLASSES.values()]
    for module in [*modules, "bylot.limits.guard"]:
        path = f"{module.replace('.', '/')}.py"
        assert any(Path(path).is_relative_to(source) for source in RECORD_SOURCES), path


def test_a_single_flipped_bit_of_the_table_is_detected(tmp_path: Path) -> None:
    record_jobs(tmp_path, [range(6)])
    table = tmp_path / "records.parquet"
    content = table.read_bytes()
    for position in range(8, len(content), len(content) // 20):
        table.write_bytes(
            content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        )
        with pytest.raises(BylotError, match="damaged or was not written by bylot"):
            read_records(tmp_path)
    table.write_bytes(content)
    assert len(read_records(tmp_path).cells) == 6


def test_a_crash_between_checksum_and_table_leaves_both_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_jobs(tmp_path, [range(3)])
    written: list[Path] = []

    def crash_before_table(path: Path, content: bytes) -> None:
        if path.name == "records.parquet":
            raise KeyboardInterrupt
        written.append(path)
        path.write_bytes(content)

    monkeypatch.setattr("bylot_paper.records.save_file", crash_before_table)
    with pytest.raises(KeyboardInterrupt):
        record_jobs(tmp_path, [range(3, 6)])
    part, checksum = written
    assert part.parent.name == "parts"
    assert checksum.name == "records.sha256"
    monkeypatch.undo()
    assert len(read_records(tmp_path).cells) == 6  # the old table, and the parts
    record_jobs(tmp_path, [])
    assert len(pl.read_parquet(tmp_path / "records.parquet")) == 6


@pytest.mark.parametrize("name", ["report.md", "summary.json", "figures"])
def test_foreign_files_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(BylotError, match=f"has a {name} that was not written by a run"):
        RecordStore(tmp_path, RUN)
    assert (tmp_path / name).read_text() == "mine"


def test_a_foreign_parquet_file_among_the_parts_is_kept(tmp_path: Path) -> None:
    record_jobs(tmp_path, [range(2)])
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.parquet").write_bytes(b"mine")
    with RecordStore(tmp_path, RUN, fresh=True) as store:
        assert store.list_known_cells() == set()
    assert (tmp_path / "parts" / "mine.parquet").read_bytes() == b"mine"
