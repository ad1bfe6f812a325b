"""What models send is passed on whole, in order and in small parts, one a turn of the loop."""

import asyncio
import contextlib
import gc
import random
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.config import ModelEntry, build_models
from bylot.gateway.model_responses import PART_BYTES, PacedTransport
from bylot.gateway.upstream import ChatBody, ModelCall, UpstreamClient
from flooding_model import make_response
from gateway_target import start_gateway, wait_for_quiet
from upstream_faults import Fault, FaultUpstream

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve(answer: Serve, secure: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve connections on a loopback port."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=secure) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the key and the certificate of a server."""
    folder = tmp_path_factory.mktemp("certificate")
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    command = ["openssl", "req", "-x509", *options, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder


class PausingProtocol(asyncio.Protocol):
    """Records what it receives, and pauses now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.parts: list[bytes] = []
        self.turns: list[int] = []
        self.is_paused = False
        self.ended = asyncio.get_running_loop().create_future()
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.is_paused
        self.parts.append(data)
        self.turns.append(turn.count)
        if self.chance.random() < 0.2:
            self.is_paused = True
            self.transport.pause_reading()
            self.loop.call_later(self.chance.random() * 0.004, self.resume)

    def resume(self) -> None:
        self.is_paused = False
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(exc)


class Turns:
    """Counts the turns of the event loop."""

    count = 0

    def step(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self.step)


turn = Turns()


async def receive(seed: int, certificate: Path | None = None) -> None:
    """Receive random data of a peer that closes the connection, and compare.

    certificate: of the server, if the connection is encrypted
    """
    secure = trusting = None
    if certificate is not None:
        secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secure.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
        trusting.check_hostname = False
    chance = random.Random(seed)
    sent = chance.randbytes(chance.randrange(1, 2_000_000))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rest = sent
        while rest:
            size = chance.randrange(1, 300_000)
            writer.write(rest[:size])
            rest = rest[size:]
            await asyncio.sleep(chance.random() * 0.002)
        writer.close()

    turn.step()
    async with serve(answer, secure) as port:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            asyncio.Protocol, "127.0.0.1", port, ssl=trusting
        )
        protocol = PausingProtocol(seed)
        paced = PacedTransport(transport, protocol)
        async with asyncio.timeout(30):
            assert await protocol.ended is None
    assert b"".join(protocol.parts) == sent
    assert max(map(len, protocol.parts)) <= PART_BYTES
    per_turn = Counter(protocol.turns).values()
    assert max(per_turn) <= 2  # the last part of a read, and the first of the next
    assert paced.is_closing()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_data_is_passed_on_in_small_parts_one_a_turn(run: Any) -> None:
    for seed in range(12):
        run(receive(seed))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_encrypted_data_is_passed_on_in_the_same_way(run: Any, certificate: Path) -> None:
    for seed in range(6):
        run(receive(seed, certificate))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_closed_transport_passes_on_nothing_more(run: Any) -> None:
    async def work() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(20 * PART_BYTES))
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        class ClosingProtocol(PausingProtocol):
            def data_received(self, data: bytes) -> None:
                self.parts.append(data)
                self.transport.close()

        async with serve(answer) as port:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
            protocol = ClosingProtocol(0)
            PacedTransport(transport, protocol)
            async with asyncio.timeout(30):
                await protocol.ended
        assert len(protocol.parts) == 1

    run(work())


def ask_server(answer: Serve, calls: int, pause_s: float = 0.0) -> list[Answer | Failure]:
    """Ask a model some times, one call after the other."""

    async def work() -> list[Answer | Failure]:
        async with serve(answer) as port:
            params = {"model": "openai/a", "api_base": f"http://127.0.0.1:{port}/v1"}
            entries = [ModelEntry(model_name="a", litellm_params=params)]
            client = UpstreamClient(build_models(entries))
            await client.start()
            outcomes = list[Answer | Failure]()
            for _ in range(calls):
                outcomes.append(await client.call("a", ChatBody(BODY), 10.0).run())
                await asyncio.sleep(pause_s)
            await client.close()
            async with asyncio.timeout(10):
                while len(asyncio.all_tasks()) > 1:  # those of the server
                    await asyncio.sleep(0.01)
        return outcomes

    return asyncio.run(work())


async def read_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    await reader.readexactly(size)


def test_what_follows_a_response_is_never_the_response_to_the_next_request() -> None:
    forged = make_response({"content": "forged"})
    empty = len(make_response({"content": "x" * 10_000})) - 10_000
    honest = make_response({"content": "x" * (PART_BYTES - empty)})
    assert len(honest) == PART_BYTES  # so that the forged ones are in later parts

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await read_request(reader)
                writer.write(honest + forged * 1_000)
        writer.close()

    for outcome in ask_server(answer, 20):
        assert isinstance(outcome, Answer)
        assert outcome.text.startswith("xxx")


def test_a_second_response_in_the_same_part_is_never_used() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await read_request(reader)
                writer.write(make_response({"content": "xxx"}))
                await asyncio.sleep(0.001)
                writer.write(make_response({"content": "forged"}))
        writer.close()

    for outcome in ask_server(answer, 20, pause_s=0.1):  # the server, too, may wake up late
        assert isinstance(outcome, Answer)
        assert outcome.text == "xxx"


def test_a_model_that_speaks_before_it_is_asked_is_not_asked() -> None:
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(make_response({"content": "forged"}) * 1_000)
        with contextlib.suppress(ConnectionError):
            asked.append(await reader.read(1))
        writer.close()

    for outcome in ask_server(answer, 3):
        if isinstance(outcome, Answer):  # its data came after the request: it is an answer
            assert asked
        else:
            assert outcome.reason == "unreachable"
            assert not outcome.sent


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_chat_leaves_no_cycles(tmp_path: Path, stream: bool) -> None:
    """A full answer in a cycle of references stays until the next full collection."""
    with (
        FaultUpstream(Fault.STATUS_500) as upstream,
        start_gateway(tmp_path, [upstream], "first") as gateway,
    ):
        headers = {"authorization": f"Bearer {gateway.key}"}
        body = {"model": gateway.model, "stream": stream, **BODY}
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                url = f"{gateway.base_url}/chat/completions"
                assert httpx.post(url, json=body, headers=headers, timeout=60).status_code == 502
            wait_for_quiet(gateway)
            assert not [one for one in gc.get_objects() if isinstance(one, ModelCall)]
        finally:
            gc.enable()
