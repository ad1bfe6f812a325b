"""The settings of a server, and the objects that all of its requests share."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.repository import LEASE_S
from bylot.server.auth import Credentials, RateLimiter
from bylot.server.metrics import ServerMetrics
from bylot.server.policy_compiler import PolicyCompiler
from bylot.server.telemetry import make_tracer
from bylot.server.writer import MakeHandler, Reader, Writer, make_command_handler

PREPARE_THREAD_PREFIX = "bylot-prepare"
PREPARE_THREADS = 4


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server.

    group_commit:    commit queued requests in one transaction; False: one commit per request
    max_queued:      commands that may wait before further ones are rejected
    rate:            requests per second and key in the long run; None: unlimited
    burst:           requests per key at once before `rate` applies; None: two seconds' worth, at
                     least ten
    max_body_bytes:  size of a request body
    body_timeout_s:  for the whole body of a request
    idle_timeout_s:  for the first byte of a request, and for the rest of its headers
    request_timeout_s: for the result of a request; the store may hang
    drain_timeout_s: for open requests when the server stops, and then for the last snapshots
    lease_s:         how long this server owns a router without renewing its lease
    """

    store: str = "sqlite:///bylot.db"
    host: str = "127.0.0.1"
    port: int = 8000
    log_level: str = "info"
    group_commit: bool = True
    max_queued: int = 10_000
    rate: float | None = None
    burst: int | None = None
    max_body_bytes: int = 1_000_000
    body_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0
    request_timeout_s: float = 25.0
    drain_timeout_s: float = 30.0
    lease_s: float = LEASE_S


class ServerState:
    """One running server.

    make_handler: creates the command handler, for tests
    stopping:     the server is shutting down and finishes its open requests
    edit_lock:    held while a request edits the configuration of a router
    compiler:     compiles the policies of routers; requests for others are served meanwhile
    prepare_pool: threads that validate the configurations of routers, so that no other request
                  waits for them
    """

    def __init__(self, settings: ServerSettings, make_handler: MakeHandler | None = None) -> None:
        self.settings = settings
        self.compiler = PolicyCompiler(settings.store)
        self.metrics = ServerMetrics()
        self.writer = Writer(
            make_handler or self.make_handler,
            on_commit=self.metrics.record_commit,
            group_commit=settings.group_commit,
            max_queued=settings.max_queued,
            timeout_s=settings.request_timeout_s,
            renew_interval_s=settings.lease_s / 3,
        )
        self.reader = Reader(settings.store, settings.request_timeout_s)
        self.credentials = Credentials(settings.host)
        self.rate_limiter = RateLimiter(settings.rate, settings.burst)
        self.tracer = make_tracer()
        self.stopping = False
        self.edit_lock = asyncio.Lock()
        self.prepare_pool = ThreadPoolExecutor(PREPARE_THREADS, PREPARE_THREAD_PREFIX)

    def make_handler(self) -> CommandHandler:
        """The command handler, which loads no router whose policy is not compiled."""
        settings = self.settings
        return make_command_handler(settings.store, settings.lease_s, self.compiler.check_router)
