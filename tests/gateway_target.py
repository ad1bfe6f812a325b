"""The gateway as a target of the conformance checks: where a test starts one on upstreams."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bylot.gateway.config import GatewayEntry, ModelEntry, ScorerEntry, build_models
from bylot.gateway.upstream import UpstreamClient
from bylot.server.auth import issue_key
from bylot.server.reconcile import declare_routers, reconcile_routers
from bylot.server.settings import SCOPES, RouterEntry, ServerSettings
from bylot.store import open_store
from conformance import Target
from live_server import ServerClient, live_server, wait_until
from upstreams import ReplayUpstream

VOICE = "a"  # all members answer as this model, so that the winner does not matter


class RunningGateway(NamedTuple):
    """Where a gateway listens; model: `bylot/ROUTER`; key: one with all scopes; store: its URL."""

    base_url: str
    model: str
    key: str
    client: ServerClient
    store: str

    def read(self, path: str) -> Any:
        """The JSON document at a path of the server."""
        return self.client.get(path, headers={"authorization": f"Bearer {self.key}"}).json()


@contextlib.contextmanager
def start_gateway(
    folder: Path,
    upstreams: Sequence[ReplayUpstream],
    answer: str = "pick",
    *,
    problem: dict[str, Any] | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    entry: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    **gateway: Any,
) -> Iterator[RunningGateway]:
    """A server whose router has all models of the upstreams as experts, until the end of a test.

    folder: for its store; problem: as in a problem file; prices: dollars per token of a prompt and
    of an answer, by model; entry, server, gateway: more settings of the router, of the server and
    of the `GatewayEntry`.
    Requests without a valid key are refused.
    """
    models = [make_model_entry(name, one, prices) for one in upstreams for name in one.models]
    names = list(dict.fromkeys(one.model_name for one in models))
    if problem is None:
        problem = {"experts": names, "costs": {"usd": [1e-4] * len(names)}, "draws": 3}
    if answer == "pick":
        gateway = {"scorer": ScorerEntry(regex={"pattern": "."}), **gateway}
    text, row = issue_key("test", SCOPES, [], at=0)
    store = f"sqlite:///{folder}/bylot.db"
    with contextlib.closing(open_store(store)) as opened:
        opened.add_key(row)
    path = folder / "problem.json"
    path.write_text(json.dumps(problem))
    asking = GatewayEntry(**{"answer": answer, **gateway})
    routers = {"panel": RouterEntry(problem=path, seed=seed, gateway=asking, **(entry or {}))}
    create_routers(store, tuple(models), routers)
    options = {"model_list": tuple(models), "routers": routers, **(server or {})}
    with live_server(folder, **options) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200, 300)
        url = f"http://127.0.0.1:{client.port}/v1"
        yield RunningGateway(url, "bylot/panel", text, client, store)


def make_model_entry(
    name: str, upstream: ReplayUpstream, prices: Mapping[str, tuple[float, float]] | None = None
) -> ModelEntry:
    """A model of an upstream, as in `model_list`."""
    params = {"model": f"openai/{name}", "api_base": upstream.url, "api_key": upstream.key}
    prompt, answer = (1e-7, 4e-7) if prices is None else prices[name]
    info = {"input_cost_per_token": prompt, "output_cost_per_token": answer}
    return ModelEntry(model_name=name, litellm_params=params, model_info=info)


def write_gateway_config(
    folder: Path, upstreams: Sequence[ReplayUpstream], routers: Mapping[str, Any]
) -> Path:
    """A configuration file with all models of upstreams, for a server process."""
    entries = [make_model_entry(name, one) for one in upstreams for name in one.models]
    names = ("model_name", "litellm_params", "model_info")
    models = [{name: getattr(one, name) for name in names} for one in entries]
    path = folder / "bylot.yaml"
    path.write_text(json.dumps({"model_list": models, "routers": routers}))  # JSON is YAML
    return path


def create_routers(
    store: str, models: tuple[ModelEntry, ...], routers: dict[str, RouterEntry]
) -> None:
    """Create routers in a store as a start of the server does."""
    settings = ServerSettings(store=store, model_list=models, routers=routers)
    with contextlib.closing(open_store(store)) as opened:
        reconcile_routers(opened, settings, declare_routers(settings))


def wait_for_quiet(gateway: RunningGateway) -> None:
    """Wait until no request is open and no settlement is outstanding."""
    end, found = time.monotonic() + 30, gateway.client.app.state.gateway
    while found.tasks or found.chats:
        assert time.monotonic() < end, "work is left over"
        time.sleep(0.05)


def run_with_client(
    entries: Sequence[ModelEntry], work: Callable[[UpstreamClient], Awaitable[Any]]
) -> Any:
    """Work with a client of models; no task of it is left over."""

    async def run() -> Any:
        client = UpstreamClient(build_models(entries))
        await client.start()
        try:
            return await work(client)
        finally:
            await client.close()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


@contextlib.contextmanager
def gateway_target(folder: Path, answer: str = "pick", **gateway: Any) -> Iterator[Target]:
    """A gateway before three models of one upstream that all answer alike."""
    with (
        ReplayUpstream(("a", "b", "c"), voice=VOICE, key="upstream-key") as upstream,
        start_gateway(folder, [upstream], answer, **gateway) as running,
    ):
        yield Target(
            *running[:2],
            upstream,
            key=running.key,
            reference=VOICE,
            is_gateway=True,
            passes_chunks=answer == "first",
        )
