"""What all requests share."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bylot.server.auth import Credentials, RateLimiter
from bylot.server.compile_pool import make_compile_pool
from bylot.server.metrics import ServerMetrics
from bylot.server.telemetry import RequestTracer
from bylot.server.writer import Reader, Writer


@dataclass(frozen=True)
class ServerSettings:
    """One server; times in seconds, sizes in bytes.

    group:     commit what queued up together; False: one commit per request, for comparison
    queue:     commands that may wait before others are turned away
    rate:      requests per second of each credential, in the long run; None: as many as it likes
    burst:     requests that a credential may send at once before `rate` applies; None: those of
               two seconds, at least ten
    body_wait: for the whole body of a request
    idle:      for the first byte of a request, and for the rest of its head
    drain:     for requests in hand, once the server is told to stop
    """

    store: str = "sqlite:///bylot.db"
    host: str = "127.0.0.1"
    port: int = 8000
    log_level: str = "info"
    group: bool = True
    queue: int = 10_000
    rate: float | None = None
    burst: int | None = None
    body: int = 1_000_000
    body_wait: float = 10.0
    idle: float = 30.0
    drain: float = 30.0
    lease: float = 10.0


@dataclass
class ServerState:
    """One server.

    contract: the OpenAPI document
    stopping: it was told to stop, and finishes what it has in hand
    editing:  held by whoever edits the terms of a router
    workshop: where problems are checked and policies compiled, so that nobody waits for that
    """

    settings: ServerSettings
    desk: Writer
    reader: Reader
    credentials: Credentials
    rates: RateLimiter
    meters: ServerMetrics
    spans: RequestTracer | None
    contract: bytes
    stopping: bool = False
    editing: asyncio.Lock = field(default_factory=asyncio.Lock)
    workshop: ThreadPoolExecutor = field(default_factory=make_compile_pool)
