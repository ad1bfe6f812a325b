"""Three small models on a loopback port, and a server whose router `panel` asks them."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from bylot.gateway.answers import Answer, Verdict
from bylot.gateway.config import GatewayEntry, ModelEntry
from bylot.server.settings import RouterEntry
from gateway_target import create_routers
from live_server import ServerClient, live_server, wait_until

MEMBERS = ("a", "b", "c")
PROMPT_TOKENS, COMPLETION_TOKENS = 10, 3
INPUT_PRICE, OUTPUT_PRICE = 1e-6, 2e-6
CALL_COST = PROMPT_TOKENS * INPUT_PRICE + COMPLETION_TOKENS * OUTPUT_PRICE
PROMPT = "What is the xylophone's secret?"
PROBLEM = """
draws: 3
experts: [a, b, c]
costs: {usd: [0.00002, 0.00003, 0.00001]}
limits: [{cost: usd, at_most: 1}]
"""


class ChatModels(ThreadingHTTPServer):
    """Models that answer at once; faults: error statuses by model; headers: of all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.faults: dict[str, int] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def list_models(self, *more: str) -> tuple[ModelEntry, ...]:
        """The models as a configuration declares them."""
        base = f"http://127.0.0.1:{self.server_port}/v1"
        prices = {"input_cost_per_token": INPUT_PRICE, "output_cost_per_token": OUTPUT_PRICE}
        return tuple(
            ModelEntry(
                model_name=name,
                litellm_params={"model": f"openai/{name}-large", "api_base": base},
                model_info=prices,
            )
            for name in (*MEMBERS, *more)
        )


class ChatHandler(BaseHTTPRequestHandler):
    """Answers `NAME says hello`, whole or as a stream."""

    server: ChatModels

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = body["model"].removesuffix("-large")
        self.server.requests.append((name, {k.lower(): v for k, v in self.headers.items()}))
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        text = f"{name} says hello"
        if name in self.server.faults:
            self.reply(self.server.faults[name], "application/json", b'{"error": {"code": "x1"}}')
        elif body.get("stream"):
            chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": text}}]}]
            chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
            chunks += [{"choices": [], "usage": usage}]
            lines = [*(json.dumps(one) for one in chunks), "[DONE]"]
            content = "".join(f"data: {one}\n\n" for one in lines).encode()
            self.reply(200, "text/event-stream", content)
        else:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            found = {"model": f"{name}-large-1", "choices": [choice], "usage": usage}
            self.reply(200, "application/json", json.dumps(found).encode())

    def reply(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


class FixedScorer:
    """Scores every answer of a member the same."""

    source, scores = "fixed", {"a": 0.25, "b": 1.0, "c": 0.5}

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """The scores of the members that answered."""
        scores = {one.member: self.scores[one.member] for one in answers}
        return Verdict(scores=scores, source=self.source)


@contextlib.contextmanager
def chat_models() -> Iterator[ChatModels]:
    """The models, served from a thread."""
    with ChatModels() as models:
        thread = threading.Thread(target=models.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield models
        finally:
            models.shutdown()
            thread.join()


@contextlib.contextmanager
def chat_server(
    folder: Path, models: ChatModels, more_models: tuple[str, ...] = (), **entry: Any
) -> Iterator[ServerClient]:
    """A server with one router that has a gateway; entry: settings of the gateway."""
    (folder / "panel.yaml").write_text(PROBLEM)
    settings = {"ask": "together", "answer": "all", "retries": 0, "refill": 0, **entry}
    gateway = GatewayEntry(**settings)
    routers = {
        "panel": RouterEntry(problem=folder / "panel.yaml", policy="random", gateway=gateway)
    }
    store = f"sqlite:///{folder}/bylot.db"
    declared = models.list_models(*more_models)
    create_routers(store, declared, routers)
    with live_server(folder, routers=routers, model_list=declared) as server:
        wait_until(lambda: server.get("/readyz").status_code == 200, 300)
        server.app.state.gateway.find("panel").scorer = FixedScorer()
        yield server


def ask_panel(server: ServerClient, **more: Any) -> httpx.Response:
    """One chat request to the panel."""
    headers = more.pop("headers", None)
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": "bylot/panel", "messages": messages, **more}
    return server.post("/v1/chat/completions", json=body, headers=headers)
