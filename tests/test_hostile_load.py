"""Hostile bodies sent to a real server: each takes little CPU and memory, and probes never wait.

A few here; `make faults` sends twenty thousand, and prints the largest figures.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bylot_bench.http_load import ServerProcess, format_post, read_answer
from live_server import FIVE_EXPERTS
from server_process import serve_store
from test_hostile_requests import (
    HEADS,
    MAX_CPU_S,
    MAX_MEMORY_BYTES,
    OTHER_PATHS,
    Shape,
    hostile_bodies,
    known_requests,
)

BODIES = int(os.environ.get("BYLOT_BODIES", "0"))  # 0: few, while other tests run beside
MAX_BODY_BYTES = 1_000_000
MAX_PROBE_S = 0.3 if BODIES else 3.0
PROBE_EVERY_S = 0.02
YAML_SHAPES: dict[str, Shape] = {
    "aliases of aliases": lambda size: b"".join(
        b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1 if n else 0)] * 9))
        for n in range(size // 60)
    ),
    "anchors": lambda size: b"".join(b"- &a%d 0\n" % n for n in range(size // 10)),
    "tags": lambda size: b"- !!python/object/apply:os.system [x]\n" * (size // 38),
    "block sequences": lambda size: b"- " * (size // 2) + b"0",
    "nested lines": lambda size: b"".join(b" " * n + b"a:\n" for n in range(round(size**0.5))),
    "merged keys": lambda size: b"<<: {a: 0}\n" * (size // 11),
    "documents": lambda size: b"--- 0\n" * (size // 6),
    "long key": lambda size: b"%s: 0" % (b"a" * size),
    "complex keys": lambda size: b"? [a, b]\n: 0\n" * (size // 13),
    "folded text": lambda size: b"a: >\n" + b"  b\n" * (size // 4),
    "comments": lambda size: b"#\n" * (size // 2),
    "directives": lambda size: b"%TAG ! tag:x,2000:\n" * (size // 19) + b"---\n0",
}


class PeakMemory:
    """The most memory that a process had since the last look, beyond what it had then."""

    def __init__(self, pid: int) -> None:
        self.folder = Path(f"/proc/{pid}")
        self.before = self.read("VmRSS")
        self.reset()

    def read(self, field: str) -> int:
        """A field of the process's status, in bytes."""
        text = (self.folder / "status").read_text().partition(f"{field}:")[2]
        return 1024 * int(text.split()[0])

    def reset(self) -> None:
        """Forget the peak so far."""
        (self.folder / "clear_refs").write_text("5")

    def take(self) -> int:
        """The growth at the peak, in bytes."""
        grown = self.read("VmHWM") - self.before
        self.before = self.read("VmRSS")
        self.reset()
        return grown


def hostile_requests(rng: random.Random, id: str) -> Iterator[tuple[str, bytes]]:
    """Requests with a name: hostile headers on some paths, then hostile bodies for all routes."""
    for path in ("/", "/v1/routers", *OTHER_PATHS[2:]):
        for name, value in HEADS:
            query, head = (b"?" + value, b"") if name == b"?" else (b"", b"%s: %s" % (name, value))
            lines = [b"GET %s%s HTTP/1.1" % (path.encode(), query), b"Host: localhost", head]
            yield f"{path} {name!r}", b"\r\n".join(filter(None, lines)) + b"\r\n\r\n"
    as_yaml = "POST", "/v1/routers?name=y", FIVE_EXPERTS
    while True:
        for method, path, valid in (*known_requests("r", id), as_yaml):
            size = round(10 ** rng.uniform(2, 6)) if rng.random() < 0.7 else 990_000
            bodies = [*hostile_bodies(rng, valid, size)]
            if valid is FIVE_EXPERTS:
                bodies += [(shape, make(size)) for shape, make in YAML_SHAPES.items()]
            for shape, body in bodies:
                request = format_post(path, body).replace(b"POST", method.encode(), 1)
                if valid is FIVE_EXPERTS:
                    request = request.replace(b"application/json", b"application/yaml", 1)
                if len(body) <= MAX_BODY_BYTES:
                    yield f"{method} {path} {shape} of {len(body):,} bytes", request


async def probe_until(server: ServerProcess, stop: asyncio.Event, waits: list[float]) -> None:
    """Ask `/healthz` again and again, and note how long each answer took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not stop.is_set():
        start = time.perf_counter()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await read_answer(reader)
        waits.append(time.perf_counter() - start)
        await asyncio.sleep(PROBE_EVERY_S)
    writer.close()


async def send_one(port: int, request: bytes) -> bytes:
    """The status line and body of the answer to one request, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(read_answer(reader), 60)
    finally:
        writer.close()


async def run_hostile_load(server: ServerProcess, count: int, seed: int) -> tuple[str, list[str]]:
    """Send requests one by one; returns a summary, and those that took too much or failed."""
    rng, waits, found = random.Random(seed), list[float](), list[str]()
    statuses: Counter[bytes] = Counter()
    most_cpu, most_memory = (0.0, ""), (0, "")
    body = {"name": "r", "problem": FIVE_EXPERTS, "policy": "distinct"}
    await asyncio.to_thread(server.post, "/v1/routers", body)
    answer = await send_one(server.port, format_post("/v1/routers/r/decisions", b"{}"))
    id = answer.partition(b'"id":"')[2].partition(b'"')[0].decode()
    memory, stop = PeakMemory(server.process.pid), asyncio.Event()
    probes = asyncio.create_task(probe_until(server, stop, waits))
    for _, (name, request) in zip(range(count), hostile_requests(rng, id), strict=False):
        cpu, probed = server.cpu(), len(waits)
        status = (await send_one(server.port, request))[9:12]
        cpu, grown = server.cpu() - cpu, memory.take()
        statuses[status] += 1
        most_cpu, most_memory = max(most_cpu, (cpu, name)), max(most_memory, (grown, name))
        late = max(waits[probed:], default=0.0)
        if cpu > MAX_CPU_S or grown > MAX_MEMORY_BYTES or status >= b"500" or late > MAX_PROBE_S:
            found.append(f"{name}: {status!r}, {cpu:.2f} s, {grown:,} bytes, probe {late:.2f} s")
    stop.set()
    await probes
    return (
        f"{count:,} requests, {len(found)} too expensive; most CPU {most_cpu[0]:.2f} s "
        f"({most_cpu[1]}), most memory {most_memory[0] / 1e6:.1f} MB ({most_memory[1]}), longest "
        f"probe {1e3 * max(waits):.0f} ms of {len(waits):,}; statuses {dict(statuses)}"
    ), found


def test_hostile_bodies_take_little_and_probes_are_answered(tmp_path: Path) -> None:
    with serve_store(f"sqlite:///{tmp_path}/bylot.db", log=tmp_path / "server.log") as server:
        summary, found = asyncio.run(run_hostile_load(server, BODIES or 250, seed=BODIES))
    print(f"\n{summary}")
    assert found == []
