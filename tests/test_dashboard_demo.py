"""`make serve`: a server and an application on it; and what `make` says before it installs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from live_server import wait_until
from server_process import SOURCES

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "dashboard" / "demo.py"


@contextmanager
def start_demo(folder: Path, port: int = 0) -> Iterator["subprocess.Popen[str]"]:
    """The server and its application, with a store in a folder."""
    words = [sys.executable, str(DEMO), "--out", str(folder), "--port", str(port)]
    process = subprocess.Popen(
        words,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_page_address(process: "subprocess.Popen[str]") -> str:
    """Wait for the address of the dashboard."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.match("The dashboard: (http.*)", line)
        if found:
            return found[1]
    raise AssertionError("the server ended")


def count_decisions(page: str) -> int:
    """Read the decisions of the router from the JSON of its page."""
    with urllib.request.urlopen(f"{page}.json") as answer:
        return int(json.load(answer)["status"]["decisions"])


def has_decisions(page: str, least: int) -> bool:
    """Whether the router has made this many decisions."""
    return count_decisions(page) >= least


def test_the_dashboard_has_traffic_and_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    played = 0
    for _ in range(2):  # the second start continues the router of the first
        with start_demo(tmp_path) as process:
            page = read_page_address(process)
            wait_until(partial(has_decisions, page, played + 100))
            played = count_decisions(page)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in output
    assert played >= 200


def test_a_port_in_use_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        start_demo(tmp_path, taken.getsockname()[1]) as process,
    ):
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot listen on 127.0.0.1" in output
    assert "make serve PORT=8001" in output


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_cluster_demo_without_haproxy_says_so_before_it_installs(tmp_path: Path) -> None:
    words = ["make", "-f", str(ROOT / "Makefile"), "cluster-demo", "HAPROXY=no-such-program"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "apt install haproxy" in done.stderr
    assert list(tmp_path.iterdir()) == []
