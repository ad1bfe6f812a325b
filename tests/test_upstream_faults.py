"""Every fault of the upstreams does what it says."""

import asyncio
import gzip
import json
import struct
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import aiohttp
import pytest

from live_server import wait_until
from upstream_faults import BOMB_BYTES, HUGE_BYTES, NESTED_LISTS, Fault, FaultUpstream, make_bomb
from upstreams import ReplayUpstream

BODY = {"model": "a", "messages": [{"role": "user", "content": "Hello, 世界"}]}


class Got(NamedTuple):
    """A response; error: what ended it early."""

    status: int
    headers: dict[str, str]
    content: bytes
    error: Exception | None


async def ask(upstream: ReplayUpstream, stream: bool, timeout: float = 5.0) -> Got:
    """Post the request once and read what comes, compressed as it is."""
    limits = aiohttp.ClientTimeout(total=timeout)
    content, status, headers = bytearray(), 0, dict[str, str]()
    async with aiohttp.ClientSession(timeout=limits, auto_decompress=False) as session:
        try:
            async with session.post(
                f"{upstream.url}/chat/completions",
                json={**BODY, "stream": stream},
                allow_redirects=False,
                headers={"authorization": "Bearer s3cret"},
            ) as response:
                status = response.status
                headers = {name.lower(): value for name, value in response.headers.items()}
                async for piece in response.content.iter_any():
                    content += piece
        except (aiohttp.ClientError, TimeoutError) as error:
            return Got(status, headers, bytes(content), error)
    return Got(status, headers, bytes(content), None)


def get(*faults: Fault, stream: bool = False, timeout: float = 5.0, **options: Any) -> Got:
    with FaultUpstream(*faults, **options) as upstream:
        return asyncio.run(ask(upstream, stream, timeout))


def read_events(got: Got) -> list[bytes]:
    return [one.removeprefix(b"data: ") for one in got.content.split(b"\n\n") if one]


def is_completion(content: bytes) -> bool:
    return bool(json.loads(content)["choices"][0]["message"]["content"])


def is_begun_stream(got: Got) -> bool:
    """Whether there are some chunks, and no end."""
    return got.status == 200 and b"assistant" in got.content and b"[DONE]" not in got.content


def is_no_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return True
    return False


EXPECTED: dict[Fault, Callable[[Got], object]] = {
    Fault.NONE: lambda got: got.status == 200 and is_completion(got.content),
    Fault.HANG: lambda got: isinstance(got.error, TimeoutError) and got.status == 0,
    Fault.SLOW: lambda got: got.status == 200 and is_completion(got.content),
    Fault.DRIP: lambda got: isinstance(got.error, TimeoutError) and 2 < len(got.content) < 20,
    Fault.CLOSED: lambda got: isinstance(got.error, aiohttp.ServerDisconnectedError),
    Fault.REFUSED: lambda got: isinstance(got.error, aiohttp.ClientConnectorError),
    Fault.STATUS_500: lambda got: got.status == 500 and json.loads(got.content)["error"],
    Fault.STATUS_503: lambda got: got.status == 503 and got.content.startswith(b"<html>"),
    Fault.RATE_LIMITED: lambda got: got.status == 429 and got.headers["retry-after"] == "7",
    Fault.RATE_LIMITED_DATE: lambda got: (
        got.status == 429
        and 0
        < (parsedate_to_datetime(got.headers["retry-after"]) - datetime.now(UTC)).total_seconds()
        <= 7
    ),
    Fault.UNAUTHORIZED: lambda got: got.status == 401,
    Fault.BAD_REQUEST: lambda got: got.status == 400,
    Fault.REDIRECT: lambda got: got.status == 307 and "//localhost:" in got.headers["location"],
    Fault.RESET: lambda got: got.status == 200 and got.error and is_no_json(got.content),
    Fault.CUT: lambda got: got.status == 200 and got.error and is_no_json(got.content),
    Fault.GARBAGE: lambda got: got.status == 200 and is_no_json(got.content),
    Fault.EMPTY_BODY: lambda got: got.status == 200 and got.content == b"",
    Fault.ERROR_IN_200: lambda got: got.status == 200 and json.loads(got.content)["error"],
    Fault.NO_CHOICES: lambda got: "choices" not in json.loads(got.content),
    Fault.EMPTY_CHOICES: lambda got: json.loads(got.content)["choices"] == [],
    Fault.NULL_MESSAGE: lambda got: json.loads(got.content)["choices"][0]["message"] is None,
    Fault.ODD_USAGE: lambda got: (
        is_completion(got.content) and json.loads(got.content)["usage"]["completion_tokens"] == -5
    ),
    Fault.NOT_UTF8: lambda got: got.status == 200 and is_no_json(got.content),
    Fault.DEEP_JSON: lambda got: len(got.content) == 2 * NESTED_LISTS and is_no_json(got.content),
    Fault.WRONG_TYPE: lambda got: (
        is_completion(got.content) and got.headers["content-type"] == "text/html"
    ),
    Fault.HUGE_BODY: lambda got: int(got.headers["content-length"]) > HUGE_BYTES,
    Fault.HUGE_CHUNKED: lambda got: (
        "content-length" not in got.headers and len(got.content) > HUGE_BYTES
    ),
    Fault.GZIP_BOMB: lambda got: (
        len(got.content) < 1_000_000 and got.headers["content-encoding"] == "gzip"
    ),
    Fault.STREAM_RESET: lambda got: is_begun_stream(got) and got.error,
    Fault.STREAM_CUT: lambda got: is_begun_stream(got) and got.error,
    Fault.STREAM_NO_DONE: lambda got: (
        is_begun_stream(got) and not got.error and b'"finish_reason": "stop"' in got.content
    ),
    Fault.STREAM_NO_FINISH: lambda got: (
        read_events(got)[-1] == b"[DONE]" and b'"finish_reason": "stop"' not in got.content
    ),
    Fault.STREAM_BAD_UTF8: lambda got: (
        b"\xff\xfe" in got.content and read_events(got)[-1] == b"[DONE]"
    ),
    Fault.STREAM_BAD_JSON: lambda got: (
        sum(is_no_json(one) for one in read_events(got)[:-1]) == 1
        and read_events(got)[-1] == b"[DONE]"
    ),
    Fault.STREAM_ERROR: lambda got: (
        is_begun_stream(got) and not got.error and "error" in json.loads(read_events(got)[-1])
    ),
    Fault.STREAM_STALL: lambda got: is_begun_stream(got) and isinstance(got.error, TimeoutError),
    Fault.STREAM_LONG_LINE: lambda got: max(map(len, read_events(got))) == HUGE_BYTES,
    Fault.STREAM_ODD_FRAMES: lambda got: (
        b"data:[DONE]\r\n" in got.content
        and b": still waiting\r\ndata:{" in got.content
        and "世界" in got.content.decode()
    ),
}
SHORT = {Fault.HANG, Fault.DRIP, Fault.STREAM_STALL}


def is_met(fault: Fault, got: Got) -> bool:
    try:
        return bool(EXPECTED[fault](got))
    except (KeyError, IndexError, ValueError):
        return False


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_fault_does_what_it_says(fault: Fault) -> None:
    timeout, started = 1.0 if fault in SHORT else 30.0, time.monotonic()
    got = get(fault, stream=fault.of_streams, timeout=timeout, retry_after_s=7, slow_s=0.5)
    assert is_met(fault, got), got._replace(content=got.content[:500])
    assert fault is not Fault.SLOW or time.monotonic() - started >= 0.5


def test_a_right_answer_meets_no_fault() -> None:
    for stream in (False, True):
        right = get(Fault.NONE, stream=stream)
        met = [fault for fault in Fault if fault.of_streams == stream and is_met(fault, right)]
        assert met == ([] if stream else [Fault.NONE, Fault.SLOW])


def test_every_fault_is_described_and_expected() -> None:
    assert set(EXPECTED) == set(Fault)
    assert len({fault.value for fault in Fault}) == len(Fault)


def test_a_reset_is_no_orderly_end() -> None:
    """The same on a raw socket: a reset raises, a cut ends the body early."""

    async def read(fault: Fault) -> bytes:
        with FaultUpstream(fault) as upstream:
            reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            content = json.dumps(BODY).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}"
            )
            writer.write(head.encode() + b"\r\n\r\n" + content)
            try:
                return await reader.read(-1)
            finally:
                writer.close()

    with pytest.raises(ConnectionResetError):
        asyncio.run(read(Fault.RESET))
    assert b'"choices"' in asyncio.run(read(Fault.CUT))
    assert asyncio.run(read(Fault.CLOSED)) == b""


def test_the_bomb_is_what_it_says() -> None:
    assert len(make_bomb()) < 400_000
    [size] = struct.unpack("<I", make_bomb()[-4:])  # of the unpacked body, as gzip writes it
    assert BOMB_BYTES < size < BOMB_BYTES + 100
    with pytest.raises(EOFError):
        gzip.decompress(make_bomb()[:1000])


def test_a_script_is_followed_and_its_last_fault_repeated() -> None:
    with FaultUpstream(Fault.STATUS_500, Fault.STREAM_CUT, Fault.NONE) as upstream:
        statuses = [asyncio.run(ask(upstream, False)).status for _ in range(4)]
        assert statuses == [500, 200, 200, 200]
        assert upstream.applied == [
            Fault.STATUS_500,
            *[Fault.NONE] * 3,
        ]  # no stream, no fault of it


def test_a_mix_follows_its_seed_and_weights() -> None:
    mix = {Fault.NONE: 0.5, Fault.STATUS_500: 0.3, Fault.GARBAGE: 0.2}

    async def ask_often(upstream: ReplayUpstream) -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(200):
                async with session.post(f"{upstream.url}/chat/completions", json=BODY):
                    pass

    def apply(seed: int) -> list[Fault]:
        with FaultUpstream(mix=mix, seed=seed) as upstream:
            asyncio.run(ask_often(upstream))
            assert sum(upstream.count_applied().values()) == 200
            return upstream.applied

    first = apply(1)
    assert first == apply(1) != apply(2)
    for fault, weight in mix.items():
        deviation = (200 * weight * (1 - weight)) ** 0.5
        assert abs(first.count(fault) - 200 * weight) < 4 * deviation


def test_a_rule_chooses_by_the_body() -> None:
    with FaultUpstream(
        choose=lambda body: Fault.NONE if body["stream"] else Fault.BAD_REQUEST
    ) as upstream:
        assert asyncio.run(ask(upstream, True)).status == 200
        assert asyncio.run(ask(upstream, False)).status == 400


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.DRIP], ids=lambda fault: fault.name)
def test_a_client_that_gives_up_is_counted(fault: Fault) -> None:
    with FaultUpstream(fault) as upstream:
        asyncio.run(ask(upstream, False, timeout=0.3))
        wait_until(lambda: upstream.cancelled == 1)
        assert upstream.active == 0


def test_whether_a_redirect_was_followed_is_known() -> None:
    async def follow(upstream: ReplayUpstream) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{upstream.url}/chat/completions", json=BODY, headers={"authorization": "x"}
            ) as response,
        ):
            assert response.status == 404

    with FaultUpstream(Fault.REDIRECT) as upstream:
        asyncio.run(ask(upstream, False))
        assert upstream.redirected == []
        asyncio.run(follow(upstream))
        [headers] = upstream.redirected
        assert "authorization" not in headers  # aiohttp drops it for another host


def test_concurrent_faults_do_not_disturb_each_other() -> None:
    async def ask_all(upstream: ReplayUpstream) -> list[Got]:
        asked: list[Awaitable[Got]] = [ask(upstream, False, timeout=2.0) for _ in range(20)]
        return await asyncio.gather(*asked)

    with FaultUpstream(mix={Fault.NONE: 1, Fault.HANG: 1, Fault.RESET: 1}, seed=2) as upstream:
        got = asyncio.run(ask_all(upstream))
        applied = upstream.count_applied()
    right = [one for one in got if one.error is None]
    assert len(right) == applied[Fault.NONE] > 0
    assert all(is_completion(one.content) for one in right)
