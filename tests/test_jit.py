"""The disk cache of compiled code can neither fail nor go stale."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from bylot.numerics import jit as compiling
from bylot.numerics.jit import find_cache_folder, fingerprint_sources, jit

PROBE = """
from bylot.numerics import jit as c
from bylot.numerics.philox import RngKey, draw_uniforms
print(c.CACHE_FOLDER, draw_uniforms(RngKey(1, 2), 3, 1)[0] > 0)
"""


COUNT_COMPILATIONS = """
from numba.core import event
from bylot import Problem, Router, at_most, simulate
from bylot.environments import Noisy
problem = Problem(["a", "b", "c"], {"usd": [1, 2, 3]}, [at_most("usd", 4)], draws=2)
with event.install_recorder("numba:compile") as recorder:
    router = Router(problem)
    router.reward(router.decide().id, 0.5)
    router.status()
    simulate(problem, Noisy([[0.2, 0.5, 0.8]]), rounds=10)
print(len(recorder.buffer))
"""


def run_probe(code: str = PROBE, **environment: str) -> str:
    """The output of a new process; by default its cache folder, and whether a kernel runs."""
    clean = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_kernels_run_if_no_folder_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a file, not a folder"
    file.touch()
    # Every possible cache folder is a file here.
    blocked = {name: str(file) for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    assert run_probe(**blocked) == "None True"


def test_a_given_folder_is_used_and_the_temporary_one_is_the_fallback(tmp_path: Path) -> None:
    assert run_probe(NUMBA_CACHE_DIR=str(tmp_path)).startswith(str(tmp_path))
    file = tmp_path / "a file"
    file.touch()
    fallback = tmp_path / "spare"
    fallback.mkdir()
    assert run_probe(XDG_CACHE_HOME=str(file), TMPDIR=str(fallback)).startswith(str(fallback))


def test_an_empty_cache_entry_is_ignored(tmp_path: Path) -> None:
    folder = run_probe(NUMBA_CACHE_DIR=str(tmp_path)).split()[0]
    entries = list(Path(folder).rglob("*.nb?"))
    assert entries
    for entry in entries:
        entry.write_bytes(b"")
    assert run_probe(NUMBA_CACHE_DIR=str(tmp_path)).endswith("True")


def test_the_folder_depends_only_on_compiled_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiling, "PACKAGE_FOLDER", tmp_path)
    (tmp_path / "numerics").mkdir()
    (tmp_path / "numerics" / "one.py").write_text("x = 1")
    before = fingerprint_sources()
    (tmp_path / "report.py").write_text("y = 1")
    assert fingerprint_sources() == before
    (tmp_path / "numerics" / "two.py").write_text("y = 1")
    assert fingerprint_sources() != before


def test_a_copy_of_the_package_uses_the_cache_of_the_first(tmp_path: Path) -> None:
    def list_entries() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}

    entries = []
    for name in ("one", "two"):
        shutil.copytree(compiling.PACKAGE_FOLDER, tmp_path / name / "bylot")
        environment = {"NUMBA_CACHE_DIR": f"{tmp_path}/cache", "PYTHONPATH": f"{tmp_path}/{name}"}
        assert run_probe(**environment).endswith("True")
        entries.append(list_entries())
    assert entries[0]
    assert entries[0] == entries[1]


def test_a_process_with_a_warm_cache_compiles_nothing() -> None:
    run_probe(COUNT_COMPILATIONS)
    assert run_probe(COUNT_COMPILATIONS) == "0"


def test_nothing_outside_the_listed_parts_is_compiled() -> None:
    marks = re.compile(r"^@(jit|jit_inline|step|overload|intrinsic|structref)\b", re.MULTILINE)
    for path in compiling.PACKAGE_FOLDER.rglob("*.py"):
        if path.relative_to(compiling.PACKAGE_FOLDER).parts[0] not in compiling.COMPILED_PARTS:
            assert not marks.search(path.read_text()), path


def test_other_packages_keep_their_own_cache_folder() -> None:
    before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
    assert find_cache_folder() is not None
    jit(lambda x: x)
    assert before == (numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES)
