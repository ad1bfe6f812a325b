"""The objects that all requests of a server share."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bylot import __version__
from bylot.eventlog.repository import make_owner_name
from bylot.gateway.config import Model, build_models
from bylot.gateway.gateway import Gateway
from bylot.server.auth import Credentials, RateLimiter
from bylot.server.cluster import Cluster
from bylot.server.metrics import ServerMetrics
from bylot.server.policy_compiler import PolicyCompiler
from bylot.server.provision import build_keys
from bylot.server.router_port import CommandPort
from bylot.server.settings import ServerSettings
from bylot.server.telemetry import make_tracer
from bylot.server.writer import (
    CommandRunner,
    MakeHandler,
    Reader,
    Writer,
    make_command_handler,
)
from bylot.store import ServerRow, find_store_folder

PREPARE_THREAD_PREFIX = "bylot-prepare"


class ServerState:
    """One running server.

    make_handler: creates the command handler, for tests
    models:       those that gateways ask; None: all of the settings
    stopping:     the server is shutting down and finishes its open requests
    edit_lock:    held while a request edits the configuration of a router
    cluster:      the servers of the store; None: this one does not know of others
    commands:     executes commands, here or on the server that owns their router
    compiler:     compiles the policies of routers; requests for others are served meanwhile
    prepare_pool: threads that validate the configurations of routers, so that no other request
                  waits for them
    """

    def __init__(
        self,
        settings: ServerSettings,
        make_handler: MakeHandler | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        self.settings = settings
        self.compiler = PolicyCompiler(settings.store)
        self.metrics = ServerMetrics()
        check = self.compiler.check_router  # loads no router whose policy is not compiled
        self.owner = make_owner_name()
        given = settings.store, settings.lease_s, check, self.owner, settings.keep_us
        make = partial(make_command_handler, *given)
        self.writer = Writer(settings, make_handler or make, self.metrics.record_commit)
        self.reader = Reader(settings.store, settings.request_timeout_s)
        self.cluster = self.make_cluster()
        self.commands: CommandRunner = self.cluster or self.writer
        self.gateway = Gateway(
            CommandPort(self.commands, self.reader, self.metrics),
            build_models(settings.model_list) if models is None else models,
            {name: one.gateway for name, one in settings.routers.items() if one.gateway},
            settings.max_chats,
            settings.max_chats_per_key,
            find_store_folder(settings.store),
        )
        self.gateway.is_shared = self.cluster is not None
        self.credentials = Credentials(settings.host, build_keys(settings.keys))
        self.rate_limiter = RateLimiter(settings.rate, settings.burst)
        self.tracer = make_tracer()
        self.stopping = False
        self.edit_lock = asyncio.Lock()
        self.prepare_pool = ThreadPoolExecutor(4, PREPARE_THREAD_PREFIX)

    def make_cluster(self) -> Cluster | None:
        """The cluster, if this server is to be known to others."""
        settings = self.settings
        if settings.advertise is None:
            return None
        me = ServerRow(self.owner, settings.advertise.rstrip("/"), __version__)
        key = settings.cluster_key or ""
        compiler = self.compiler
        return Cluster(me, key, self.writer, self.reader, compiler.is_ready, compiler.prepare)
