"""Requests made to be expensive: the work and the memory of each are bounded by its size."""

import asyncio
import gc
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bylot.api import EditRouterRequest
from bylot.eventlog.commands import format_decision_id
from bylot.problem import at_least, share
from bylot.problem.validation import add_derived_costs
from bylot.server.app import GC_THRESHOLD_OBJECTS, ServerApp
from bylot.server.config_requests import change_experts
from bylot.server.dashboard.routes import SignIn
from bylot.server.http_errors import ApiError
from bylot.server.other_apis import MAX_FEATURES, context_from_features
from bylot.server.request_parsing import MAX_OBJECT_FIELDS, read_body, reject_duplicate_fields
from bylot.server.routes import ROUTES
from bylot.server.settings import ServerSettings
from live_server import FIVE_EXPERTS
from page_client import PageClient

MAX_CPU_S = 0.25
MAX_MEMORY_BYTES = 50_000_000


@contextmanager
def measured_memory() -> Iterator[list[int]]:
    """The most memory that the block has allocated at any moment, in bytes."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


@pytest.mark.parametrize(
    "features",
    [
        [{"n" * 20_000: {str(leaf): 0 for leaf in range(2_000)}}],
        [{"n" * 20_000: {str(leaf): {} for leaf in range(2_000)}}],
        [{"n" * 190: {"m" * 20_000: {str(leaf): 0 for leaf in range(2_000)}}}],
        [{str(leaf): {"n" * 1_000: 0}} for leaf in range(5_000)],
    ],
    ids=["leaves", "groups", "two levels", "many objects"],
)
def test_features_are_refused_before_a_long_name_is_repeated_in_each(
    features: list[dict[str, Any]],
) -> None:
    with measured_memory() as peak, pytest.raises(ApiError) as refusal:
        context_from_features(features)
    assert refusal.value.field == "contextFeatures"
    assert peak[0] < 1_000_000  # the strings of the first kind would have 40 MB


def test_a_context_has_a_limited_number_of_features() -> None:
    names = [chr(ord("A") + n) for n in range(MAX_FEATURES)]
    assert context_from_features([dict.fromkeys(names, 1)])
    with pytest.raises(ApiError):
        context_from_features([dict.fromkeys(names, 1), {"one": {}}])


class CountedName(str):
    """A name that counts how often it is compared with another one."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str(self) == str(other)


def test_a_duplicate_field_is_found_in_one_pass() -> None:
    pairs = [(CountedName(n), 0) for n in range(MAX_OBJECT_FIELDS - 1)]
    last = str(MAX_OBJECT_FIELDS - 2)
    CountedName.compared = 0
    with pytest.raises(ApiError) as refusal:
        reject_duplicate_fields([*pairs, (CountedName(last), 0)])
    assert refusal.value.field == last
    assert CountedName.compared < 4 * MAX_OBJECT_FIELDS  # hashes differ; a search compares 500,000


def test_an_object_has_a_limited_number_of_fields() -> None:
    reject_duplicate_fields([(str(n), 0) for n in range(MAX_OBJECT_FIELDS)])
    with pytest.raises(ApiError, match="1001 fields"):
        reject_duplicate_fields([(str(n), 0) for n in range(MAX_OBJECT_FIELDS + 1)])


def test_the_members_of_a_share_are_looked_up_and_not_searched() -> None:
    names = tuple(CountedName(f"e{n}") for n in range(300))
    limit = at_least(share("s", [f"e{n}" for n in range(300)]), 0.0)
    CountedName.compared = 0
    add_derived_costs(names, {}, (limit,))
    assert CountedName.compared < 3_000  # a search compares 45,000


class CountedRow(list[float]):
    """A row of costs that counts how often it is copied."""

    copies = 0

    def __iter__(self) -> Iterator[float]:
        CountedRow.copies += 1
        return super().__iter__()


def test_an_edit_of_many_experts_copies_their_costs_once() -> None:
    row = CountedRow([1.0] * 300)
    names = [f"e{n}" for n in range(300)]
    share = {"share": "s", "members": names, "at_least": 0.0}
    problem = {"experts": names, "costs": {"usd": row}, "limits": [share], "floor": 0.0}
    added = tuple({"name": f"n{n}", "usd": 2.0, "group": "s"} for n in range(200))
    edit = EditRouterRequest(remove=tuple(names[:200]), add=added)
    CountedRow.copies = 0
    made = change_experts(problem, edit)
    assert CountedRow.copies == 0  # by index
    assert made["costs"]["usd"] == [1.0] * 100 + [2.0] * 200
    assert (
        made["experts"]
        == made["limits"][0]["members"]
        == [*names[200:], *(one["name"] for one in added)]
    )


def test_a_body_that_arrives_byte_by_byte_is_joined_once() -> None:
    """After a long part, each byte would cost a copy of all before it: 56 GB in all."""
    parts = [*[b"b"] * 60_000, b"a" * 900_000]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(), "more_body": len(parts) > 0}

    start = time.process_time()
    body = asyncio.run(read_body(receive, {}, 1_000_000))
    assert time.process_time() - start < 0.5
    assert body == b"a" * 900_000 + b"b" * 60_000


def test_cookies_are_read_in_one_pass() -> None:
    """Unquoting searches the rest of a value at each of its 30,000 backslashes."""
    client = PageClient([*SignIn(lambda token: None).routes()])
    start = time.process_time()
    answer = client.post("/sign-out", headers={"cookie": 'a="' + '\\"' * 30_000 + '"'})
    assert time.process_time() - start < 0.5
    assert answer.status_code == 303


class Cost(NamedTuple):
    """What a request took: seconds of CPU, bytes of memory at the most; and its status."""

    cpu: float
    memory: int
    status: int

    def is_too_high(self) -> bool:
        """Return whether the request took too much, or failed."""
        return self.cpu > MAX_CPU_S or self.memory > MAX_MEMORY_BYTES or self.status >= 500


class HostedApp:
    """An application in this process, asked without a network."""

    def __init__(self, app: ServerApp) -> None:
        self.app = app

    async def send(
        self, method: str, path: str, body: bytes, head: tuple[bytes, bytes] = (b"x", b"")
    ) -> int:
        """The status of the response; head: the query (as b"?"), or a header."""
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": head[1] if head[0] == b"?" else b"",
            "headers": [
                head,
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ],
        }
        sent: list[Any] = []
        unread = [body]

        async def receive() -> dict[str, Any]:
            if not unread:
                await asyncio.Event().wait()  # the caller stays and says nothing more
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return int(sent[0]["status"])

    async def measure(self, *request: Any) -> Cost:
        """Send a request twice: tracing memory takes time."""
        start = time.process_time()
        status = await self.send(*request)
        seconds = time.process_time() - start
        with measured_memory() as peak:
            await self.send(*request)
        return Cost(seconds, peak[0], status)


def known_requests(name: str, id: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and a valid body for every route that has one."""
    ask = {"context": "a", "available": ["ann", "bob"], "key": "k", "defer": False}
    reward = {"value": 0.5, "spend": {"usd": 1.5}, "key": "r"}
    bodies: dict[str, Any] = {
        "create_router": {"name": name, "problem": FIVE_EXPERTS, "policy": "distinct"},
        "edit_router": {"pause": ["ann"], "resume": ["ann"], "add": [], "remove": [], "wait": 9.5},
        "set_tenant": {"limits": [{"cost": "usd", "at_most": 5.0, "per": "month"}]},
        "learn_rounds": {"rounds": [{"panel": ["ann", "bob"], "reward": 1.0}], "after": 0},
        "create_decision": ask,
        "create_decisions": {"decisions": [ask, {}]},
        "replace_member": {"failed": "ann", "available": ["bob", "cat"]},
        "create_reward": reward,
        "create_rewards": {"rewards": [{"decision": id, **reward}]},
        "personalizer_rank": {"actions": [{"id": "ann", "features": []}], "contextFeatures": [{}]},
        "personalizer_reward": {"value": 0.5},
        "create_chat_completion": {"model": "bylot/none", "messages": [{"role": "user"}]},
        "create_response": {"model": "bylot/none", "input": [{"role": "user", "content": "a"}]},
        "create_feedback": {"inference_id": id, "metric_name": "m", "value": 0.5, "tags": {}},
        "create_outcome": {"replay_id": id, "target": "route", "verdict": "failed", "score": 0.5},
    }
    for route in ROUTES:
        if route.body is not None:
            body = bodies[route.function.__name__]
            yield route.method, route.path.format(name=name, id=id, tenant="ann"), body


Shape = Callable[[int], bytes]


def repeat(item: bytes, size: int) -> bytes:
    """An array of one item, repeated to this size."""
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


def members(size: int, value: bytes = b"0") -> bytes:
    """The members of an object, with different names."""
    return b",".join(b'"%d":%s' % (n, value) for n in range(size // (9 + len(value))))


SHAPES: dict[str, Shape] = {
    "wide object": lambda size: b"{%s}" % members(size),
    "last member twice": lambda size: b'{%s,"x":0,"x":0}' % members(size),
    "long name above many": lambda size: b'{"%s":{%s}}' % (b"n" * (size // 2), members(size // 2)),
    "names nested": lambda size: (
        b'{"%s":' % (b"n" * 99) * (size // 102) + b"0" + b"}" * (size // 102)
    ),
    "groups without features": lambda size: b"{%s}" % members(size, b"{}"),
    "deep arrays": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "900 arrays": lambda size: b"[" * 900 + b"]" * 900,
    "deep objects": lambda size: b'{"a":' * (size // 6) + b"0" + b"}" * (size // 6),
    "900 objects": lambda size: b'{"a":' * 900 + b"0" + b"}" * 900,
    "empty arrays": lambda size: repeat(b"[]", size),
    "empty objects": lambda size: repeat(b"{}", size),
    "small objects": lambda size: repeat(b'{"a":[]}', size),
    "long text": lambda size: b'"%s"' % (b"a" * size),
    "wide characters": lambda size: b'"%s"' % ("\U0001f600".encode() * (size // 4)),
    "escapes": lambda size: b'"%s"' % (b"\\u0000" * (size // 6)),
    "combining marks": lambda size: b'"%s"' % ("\u0315\u0300".encode() * (size // 4)),
    "digits": lambda size: b"9" * size,
    "decimals": lambda size: b"0.%s1e-999" % (b"0" * size),
    "exponent": lambda size: b"1e%s" % (b"9" * size),
    "numbers": lambda size: repeat(b"0.1", size),
    "texts": lambda size: repeat(b'"ab"', size),
    "unknown names": lambda size: repeat(b'"%s"' % (b"z" * 40), size),
    "blank": lambda size: b" " * size + b"0",
    "colons": lambda size: b'"%s"' % (b":" * size),
    "asks": lambda size: repeat(b'{"context":"a"}', size),
    "features": lambda size: repeat(b'{"a":{"b":0}}', size),
}


OTHER_PATHS = ("/sign-in", "/routers/" + "a" * 60_000, "/nowhere", "/v1/routers/r/events")
HEADS = [
    (b"cookie", b'a="%s"' % (b'\\"' * 30_000)),
    (b"cookie", b"a=b;" * 15_000),
    (b"cookie", b"bylot_session=" + b"a" * 60_000),
    (b"authorization", b"Bearer " + b"bylot_" * 10_000),
    (b"authorization", b" " * 60_000),
    (b"origin", b"http://" + b"[" * 60_000),
    (b"content-type", b"application/json;" + b"a=b;" * 15_000),
    (b"idempotency-key", b"~" * 60_000),
    (b"bylot-router", b"a" * 60_000),
    (b"?", b"a=b&" * 15_000),
    (b"?", b"".join(b"a%d=&" % n for n in range(8_000))),
    (b"?", b"after=" + b"%41" * 20_000),
    (b"?", b"next=" + b"/" * 60_000),
    (b"?", b"limit=" + b"9" * 60_000),
]


def hostile_bodies(
    rng: random.Random, valid: dict[str, Any], size: int
) -> Iterator[tuple[str, bytes]]:
    """For each shape, a body that has it in the place of one value, or in an unknown field."""
    for name, shape in SHAPES.items():
        marked = json.loads(json.dumps({**valid, "unknown": 0} if rng.random() < 0.1 else valid))
        place: Any = marked
        step: Any = rng.choice([*marked])
        while isinstance(place[step], dict | list) and place[step] and rng.random() < 0.6:
            place = place[step]
            step = rng.choice([*place]) if isinstance(place, dict) else 0
        place[step] = "HERE"
        yield name, json.dumps(marked).encode().replace(b'"HERE"', shape(size))


async def find_expensive(folder: Path, rounds: int, size: int, seed: int) -> tuple[int, list[str]]:
    """How many hostile requests were sent, and those that took too much or failed."""
    settings = ServerSettings(store=f"sqlite:///{folder}/bylot.db")
    rng, app = random.Random(seed), ServerApp(settings)
    hosted, count, found = HostedApp(app), 0, []
    async with app.lifespan(app.starlette):
        body = json.dumps({"name": "r", "problem": FIVE_EXPERTS, "policy": "distinct"}).encode()
        while (status := await hosted.send("POST", "/v1/routers", body)) == 503:
            await asyncio.sleep(0.1)  # its policy is being compiled
        assert status == 201
        assert await hosted.send("POST", "/v1/routers/r/decisions", b"{}") == 201
        for path in ("/", "/v1/routers", *OTHER_PATHS[: rounds - 1]):
            for head in HEADS:
                cost = await hosted.measure("GET", path, b"", head)
                count += 1
                if cost.is_too_high():
                    found.append(f"GET {path} {head[0]!r} {head[1][:30]!r}: {cost}")
        event = await app.state.reader.read(lambda store: store.event(1, 1))
        assert event is not None
        id = format_decision_id("r", event)
        for _ in range(rounds):
            for method, path, valid in known_requests("r", id):
                for shape, body in hostile_bodies(rng, valid, size):
                    cost = await hosted.measure(method, path, body)
                    count += 1
                    if cost.is_too_high():
                        found.append(f"{method} {path} {shape} {body[:60]!r}: {cost}")
    return count, found


@pytest.fixture
def server_gc() -> Iterator[None]:
    """Garbage collection as in a server."""
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, *threshold[1:])
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.usefixtures("server_gc")
def test_hostile_requests_take_little(tmp_path: Path) -> None:
    count, found = asyncio.run(find_expensive(tmp_path, rounds=1, size=60_000, seed=6))
    assert count > 200
    assert not found


@pytest.mark.slow
@pytest.mark.usefixtures("server_gc")
def test_thousands_of_hostile_requests_of_the_largest_size_take_little(tmp_path: Path) -> None:
    count, found = asyncio.run(find_expensive(tmp_path, rounds=15, size=990_000, seed=2))
    assert count > 3_000
    assert not found
