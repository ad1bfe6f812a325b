"""Downloads from a local server: complete, interrupted and continued, wrong, or impossible."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bylot.errors import DataError, DataUnreachable
from bylot_paper import crowd_sources
from bylot_paper.crowd_sources import (
    DOWNLOAD_ATTEMPTS,
    DOWNLOAD_CHUNK_BYTES,
    DOWNLOAD_PACKAGES,
    TREC_CROWD_FILE,
    TREC_SHA256,
    TREC_TRUTH_FILE,
    TREC_URL,
    fetch_trec,
    find_cached_trec,
    find_crowd,
)

CONTENT = {TREC_CROWD_FILE: bytes(range(1, 251)) * 2_000, TREC_TRUTH_FILE: b"5\t2\n6\t1\n"}


class Request(NamedTuple):
    """A request, and how many bytes were sent."""

    name: str
    range: str | None
    sent: int


class Server(ThreadingHTTPServer):
    """Serves CONTENT; can break off after some bytes or ignore ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = dict(CONTENT)
        self.log: list[Request] = []
        self.breaks: list[int] = []  # the next answers break off after these numbers of bytes
        self.ranges = True
        self.status: int | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def requests_for(self, name: str) -> list[Request]:
        return [request for request in self.log if request.name == name]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, name, range_ = self.server, self.path[1:], self.headers["Range"]
        content = server.content.get(name)
        if server.status or content is None:
            server.log.append(Request(name, range_, 0))
            self.send_error(server.status or 404)
            return
        start = int(range_.removeprefix("bytes=").rstrip("-")) if range_ and server.ranges else 0
        if start >= len(content):
            server.log.append(Request(name, range_, 0))
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if server.breaks:
            body = body[: server.breaks.pop(0)]
            self.close_connection = True
        server.log.append(Request(name, range_, len(body)))
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(crowd_sources, "RETRY_PAUSE_S", 0.0)
    for name, content in CONTENT.items():
        monkeypatch.setitem(TREC_SHA256, name, hashlib.sha256(content).hexdigest())
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def list_file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_both_files_are_fetched_once_and_then_found(server: Server, tmp_path: Path) -> None:
    folder = fetch_trec(tmp_path / "new", server.base)
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert list_file_names(folder) == set(CONTENT)
    assert fetch_trec(tmp_path / "new", server.base) == folder
    assert [(request.name, request.range) for request in server.log] == [
        (TREC_CROWD_FILE, None),
        (TREC_TRUTH_FILE, None),
    ]


def test_a_download_that_broke_off_is_continued_within_one_call(
    server: Server, tmp_path: Path
) -> None:
    half = 60 * DOWNLOAD_CHUNK_BYTES
    server.breaks = [half]
    folder = fetch_trec(tmp_path, server.base)
    assert (folder / TREC_CROWD_FILE).read_bytes() == CONTENT[TREC_CROWD_FILE]
    assert list_file_names(folder) == set(CONTENT)
    assert server.requests_for(TREC_CROWD_FILE) == [
        Request(TREC_CROWD_FILE, None, half),
        Request(
            TREC_CROWD_FILE, f"bytes={half}-", len(CONTENT[TREC_CROWD_FILE]) - half
        ),  # no byte twice
    ]


def test_less_than_a_chunk_is_fetched_twice_per_interruption(
    server: Server, tmp_path: Path
) -> None:
    server.breaks = [100_001, 99_999, 1]
    folder = fetch_trec(tmp_path, server.base)
    assert (folder / TREC_CROWD_FILE).read_bytes() == CONTENT[TREC_CROWD_FILE]
    requests = server.requests_for(TREC_CROWD_FILE)
    assert len(requests) == DOWNLOAD_ATTEMPTS
    repeated_bytes = sum(request.sent for request in requests) - len(CONTENT[TREC_CROWD_FILE])
    assert 0 < repeated_bytes < DOWNLOAD_CHUNK_BYTES * (DOWNLOAD_ATTEMPTS - 1)


def test_a_later_call_continues_an_unfinished_download(server: Server, tmp_path: Path) -> None:
    server.breaks = [10 * DOWNLOAD_CHUNK_BYTES] * DOWNLOAD_ATTEMPTS
    with pytest.raises(DataUnreachable, match="cannot download trec"):
        fetch_trec(tmp_path, server.base)
    assert list_file_names(tmp_path) == {f"{TREC_CROWD_FILE}.part"}
    assert (
        server.requests_for(TREC_CROWD_FILE)[-1].range
        == f"bytes={10 * DOWNLOAD_CHUNK_BYTES * (DOWNLOAD_ATTEMPTS - 1)}-"
    )
    fetch_trec(tmp_path, server.base)
    assert (
        server.requests_for(TREC_CROWD_FILE)[DOWNLOAD_ATTEMPTS].range
        == f"bytes={10 * DOWNLOAD_CHUNK_BYTES * DOWNLOAD_ATTEMPTS}-"
    )
    assert sum(request.sent for request in server.requests_for(TREC_CROWD_FILE)) == len(
        CONTENT[TREC_CROWD_FILE]
    )
    assert {name: (tmp_path / name).read_bytes() for name in list_file_names(tmp_path)} == CONTENT


def test_without_ranges_the_file_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    server.ranges, server.breaks = False, [60 * DOWNLOAD_CHUNK_BYTES]
    folder = fetch_trec(tmp_path, server.base)
    assert (folder / TREC_CROWD_FILE).read_bytes() == CONTENT[TREC_CROWD_FILE]
    assert [request.range for request in server.requests_for(TREC_CROWD_FILE)] == [
        None,
        f"bytes={60 * DOWNLOAD_CHUNK_BYTES}-",
    ]


def test_a_complete_part_left_by_a_crash_is_not_downloaded_again(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / f"{TREC_CROWD_FILE}.part").write_bytes(CONTENT[TREC_CROWD_FILE])
    folder = fetch_trec(tmp_path, server.base)
    assert (folder / TREC_CROWD_FILE).read_bytes() == CONTENT[TREC_CROWD_FILE]
    assert sum(request.sent for request in server.requests_for(TREC_CROWD_FILE)) == 0


def test_a_wrong_file_is_refused_with_both_checksums_and_deleted(
    server: Server, tmp_path: Path
) -> None:
    server.content[TREC_CROWD_FILE] = b"<html>Please log in to this network</html>"
    with pytest.raises(DataError) as caught:
        fetch_trec(tmp_path, server.base)
    assert not isinstance(caught.value, DataUnreachable)  # a synthetic crowd must not replace it
    assert_one_line_error(
        caught.value,
        TREC_CROWD_FILE,
        TREC_SHA256[TREC_CROWD_FILE],
        hashlib.sha256(server.content[TREC_CROWD_FILE]).hexdigest(),
    )
    assert_one_line_error(caught.value, "was deleted", "by hand")
    assert list_file_names(tmp_path) == set()
    server.content[TREC_CROWD_FILE] = CONTENT[TREC_CROWD_FILE]
    fetch_trec(tmp_path, server.base)
    assert list_file_names(tmp_path) == set(CONTENT)


def test_a_stale_part_spoils_one_download_and_not_the_next(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{TREC_CROWD_FILE}.part").write_bytes(b"other bytes")
    with pytest.raises(DataError, match="try again"):
        fetch_trec(tmp_path, server.base)
    fetch_trec(tmp_path, server.base)
    assert (tmp_path / TREC_CROWD_FILE).read_bytes() == CONTENT[TREC_CROWD_FILE]


def test_a_damaged_file_in_the_folder_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / TREC_TRUTH_FILE).write_bytes(b"5\t1\n")
    fetch_trec(tmp_path, server.base)
    assert (tmp_path / TREC_TRUTH_FILE).read_bytes() == CONTENT[TREC_TRUTH_FILE]


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, DOWNLOAD_ATTEMPTS)])
def test_a_refusal_is_not_retried_but_a_temporary_error_is(
    server: Server, tmp_path: Path, status: int, requests: int
) -> None:
    server.status = status
    with pytest.raises(DataUnreachable, match=str(status)):
        fetch_trec(tmp_path, server.base)
    assert len(server.log) == requests


def find_unused_address() -> str:
    """An address without a server: a port that was just released."""
    with Server() as closed:
        return closed.base


def test_without_a_network_the_error_says_what_to_do(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataUnreachable) as caught:
        fetch_trec(tmp_path, find_unused_address())
    assert_one_line_error(
        caught.value,
        TREC_CROWD_FILE,
        TREC_TRUTH_FILE,
        "--data FOLDER",
        "--data synthetic",
        TREC_URL,
    )


def test_files_go_to_the_configured_cache_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = fetch_trec(base=server.base)
    assert folder.is_relative_to(tmp_path)
    assert list_file_names(folder) == set(CONTENT)


def test_a_folder_that_cannot_be_created_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError) as caught:
        fetch_trec(tmp_path / "file" / "folder", server.base)
    assert_one_line_error(caught.value, "file", "cannot save", "XDG_CACHE_HOME")
    assert not isinstance(caught.value, DataUnreachable)


@pytest.mark.parametrize("package", DOWNLOAD_PACKAGES)
def test_a_missing_package_is_explained(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError) as caught:
        fetch_trec(tmp_path, server.base)
    assert_one_line_error(caught.value, package, "pip install '.[reproduce]' in the folder")


def test_no_network_gives_a_synthetic_crowd_and_says_so(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BYLOT_DATA", raising=False)
    base = find_unused_address()
    monkeypatch.setattr(crowd_sources, "fetch_trec", lambda: fetch_trec(base=base))
    assert find_crowd(None).synthetic
    assert "using a synthetic crowd" in capsys.readouterr().err


def test_a_wrong_download_is_not_replaced_by_a_synthetic_crowd(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content[TREC_CROWD_FILE] = b"something else"
    monkeypatch.delenv("BYLOT_DATA", raising=False)
    monkeypatch.setattr(crowd_sources, "fetch_trec", lambda: fetch_trec(tmp_path, server.base))
    with pytest.raises(DataError, match="sha256"):
        find_crowd(None)


def assert_one_line_error(error: DataError, *words: str) -> None:
    """The error has one line and contains these words."""
    assert len(str(error).splitlines()) == 1
    assert all(word in str(error) for word in words), str(error)


def test_offline_only_the_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_if_called(*_: object) -> Path:
        raise AssertionError("the network was used")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BYLOT_DATA", raising=False)
    monkeypatch.setattr(crowd_sources, "fetch_trec", fail_if_called)
    assert find_crowd(None, offline=True).synthetic
    assert "bylot data fetch trec" in capsys.readouterr().err
    folder = find_cached_trec()
    folder.mkdir(parents=True)
    for name in TREC_SHA256:
        (folder / name).write_text("not the paper's")
    with pytest.raises(DataError, match="is not the paper's file"):  # found, read and refused
        find_crowd(None, offline=True)
