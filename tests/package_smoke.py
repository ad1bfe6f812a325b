"""Smoke test of an installed bylot[serve,plot], in a clean environment outside the repository.

It uses nothing but bylot and the standard library, so that it also runs in an image.
"""

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path

BYLOT = str(Path(sysconfig.get_path("scripts")) / "bylot")
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = str(probe.getsockname()[1])
URL = f"http://127.0.0.1:{PORT}"


def run_bylot(*words: str) -> str:
    """The output of a command."""
    done = subprocess.run([BYLOT, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"bylot {' '.join(words)}: {done.stderr}"
    return done.stdout


def get(path: str) -> bytes:
    with urllib.request.urlopen(f"{URL}{path}", timeout=30) as response:
        return bytes(response.read())


def check_import(folder: Path) -> None:
    """The installed package is imported, not a source tree, and it knows its version."""
    import bylot

    assert Path(bylot.__file__).is_relative_to(sysconfig.get_path("purelib")), bylot.__file__
    assert (Path(bylot.__file__).parent / "py.typed").exists()
    assert run_bylot("--version") == f"bylot {bylot.__version__}\n"


def check_problem_files(folder: Path) -> None:
    """The schema and the starter problem are in the package."""
    assert json.loads(run_bylot("problem", "schema"))["properties"]
    (folder / "pool.yaml").write_text(run_bylot("problem", "new"))
    run_bylot("problem", "check", str(folder / "pool.yaml"))


def check_simulation(folder: Path) -> None:
    """A tiny what-if report."""
    words = ("--rounds", "40", "--seeds", "1", "--policy", "random", "--out", str(folder / "out"))
    run_bylot("simulate", str(folder / "pool.yaml"), *words)
    assert any((folder / "out").iterdir())


def check_bench(folder: Path) -> None:
    """Benchmarks are not in the package, and the command says where they are."""
    done = subprocess.run([BYLOT, "bench", "start"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "bylot_bench" in done.stderr, done.stderr
    assert "repository" in done.stderr, done.stderr


def check_server(folder: Path) -> None:
    """A server decides and learns, and has its pages, styles and scripts."""
    from bylot import Client

    store = f"sqlite:///{folder}/bylot.db"
    server = subprocess.Popen([BYLOT, "serve", "--store", store, "--port", PORT])
    try:
        with Client(URL, retries=30) as client:
            wait_until_ready(server)
            run_bylot("router", "create", "smoke", str(folder / "pool.yaml"), "--server", URL)
            router = client.router("smoke")
            decision = router.decide(context="first")
            assert router.reward(decision.id, 0.5) == "learned"
            assert router.status().decisions == 1
        page = get("/routers/smoke").decode()
        assets = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg))"', page)
        assert {".js", ".css", ".svg"} == {Path(one).suffix for one in assets}
        assert all(map(get, assets))
        assert b"smoke" in get("/")
        assert json.loads(get("/openapi.json"))["openapi"].startswith("3.1")
    finally:
        server.terminate()
        assert server.wait(90) == 0
    assert "all verified" in run_bylot("replay", "smoke", "--store", store)


def wait_until_ready(server: "subprocess.Popen[bytes]", seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while True:
        assert server.poll() is None, "the server has ended"
        try:
            get("/readyz")
            return
        except OSError:
            assert time.monotonic() < end, "the server is not ready"
            time.sleep(0.1)


def main() -> int:
    checks = [check_import, check_problem_files, check_simulation, check_bench, check_server]
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for check in checks:
            start = time.monotonic()
            check(Path(name))
            print(f"{check.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(checks)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
