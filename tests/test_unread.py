"""Output that goes nowhere: nobody reads it to its end (`bylot ... | head -1`), or there is no room
for it, or for one of its signs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BYLOT = [sys.executable, "-m", "bylot"]


def without_reader(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process whose output goes into a pipe that has no other end."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [*BYLOT, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)


@pytest.mark.parametrize("verb", [["problem", "schema"], ["problem", "new"]], ids=" ".join)
def test_a_verb_whose_reader_has_gone_ends_quietly_with_the_code_of_a_broken_pipe(
    verb: list[str],
) -> None:
    done = without_reader(*verb)
    assert done.returncode == 141
    assert done.stderr == ""


def test_help_that_nobody_reads_is_no_error() -> None:
    assert without_reader("--help").stderr == ""  # its code is that of argparse if it ate the error


def test_an_error_is_told_though_nobody_reads_the_output(tmp_path: Path) -> None:
    done = without_reader("problem", "check", str(tmp_path / "none.yaml"))
    assert done.returncode == 1
    assert done.stderr.startswith("bylot: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_error_that_nobody_reads_ends_quietly_too(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*BYLOT, "problem", "check", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 141
    assert done.stdout == b""


def test_the_beginning_of_a_long_output_can_be_had_alone(tmp_path: Path) -> None:
    names = [f"expert-{i:05d}-{'x' * 60}" for i in range(3_000)]  # past what a pipe holds
    lines = [f"  - {{name: {name}, usd: {1 + i % 3}}}\n" for i, name in enumerate(names)]
    rest = "costs: {usd: dollars}\nlimits:\n  - {cost: usd, at_most: 4, per: request}\n"
    pool = tmp_path / "pool.yaml"
    pool.write_text("draws: 2\nexperts:\n" + "".join(lines) + rest)
    writer = subprocess.Popen(
        [*BYLOT, "problem", "check", "--json", str(pool)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    with writer, writer.stdout, writer.stderr:
        assert writer.stdout.read(10).startswith(b"{")
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_there_is_no_room_for_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*BYLOT, "problem", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("bylot: output cannot be written (")
    assert len(done.stderr.splitlines()) == 1


def test_a_sign_that_the_terminal_does_not_have_is_spelt_out(tmp_path: Path) -> None:
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "draws: 1\nexperts: [{name: ann, group: été}, {name: bob, group: hiver}]\n"
        "limits: [{group: été, at_least: 0.2, per: request}]\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [*BYLOT, "problem", "check", str(pool)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\xe9t\xe9 at_least" in done.stdout
