"""The command line: quick to help, plain about errors, JSON where it is asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

from bylot.cli import main


def bylot(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A real process, as a person would start it."""
    command = [sys.executable, "-m", "bylot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_lists_the_verbs() -> None:
    answer = bylot("--help")
    assert answer.returncode == 0
    assert "bench" in answer.stdout
    assert "demo" in answer.stdout


def test_help_does_not_load_the_compiler() -> None:
    code = (
        "import sys; from bylot.cli import make_parser; make_parser().format_help();"
        "print([m for m in ('numba', 'numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bad_usage_is_two_and_an_explained_error_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bylot("fly").returncode == 2
    for option, wrong, wanted in (
        ("--rounds", "0", "a whole number from 1 to 1,000,000"),
        ("--rounds", "many", "a whole number from 1 to 1,000,000"),
        ("--rounds", "2.5", "a whole number from 1 to 1,000,000"),
        ("--seed", "-1", "a whole number of 0 or more"),
    ):
        answer = bylot("demo", option, wrong)
        assert answer.returncode == 2
        assert f"argument {option}: invalid value {wrong!r}: expected {wanted}" in answer.stderr
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "cannot be a folder for figures" in capsys.readouterr().err


def test_the_demo_prints_a_table_and_writes_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--rounds", "600", "--out", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert "distinct, the default" in out
    assert "omd, the paper's policy" in out
    assert "best draws, exact limits" in out
    for kind in ("png", "svg"):
        assert (tmp_path / "new" / f"demo.{kind}").stat().st_size > 10_000
