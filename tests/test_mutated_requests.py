"""Requests with some changed bytes are all answered, and never with a server error."""

import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from bylot.server.routes import ROUTES
from live_server import FIVE_EXPERTS, ServerClient

FRAGMENTS = [b"null", b"1e999", b"-1", b"[]", b"{}", b'""', b"\\u0000", b"\xff", b"NaN", b"9" * 400]


def test_mutated_requests_never_cause_a_server_error(server: ServerClient) -> None:
    statuses = send_mutated_requests(server, 2_000, seed=1)
    assert {200, 201, 400, 404, 405, 422} <= set(statuses)


@pytest.mark.slow
def test_a_hundred_thousand_mutated_requests_are_answered(server: ServerClient) -> None:
    send_mutated_requests(server, 100_000, seed=2)


def test_the_test_above_would_notice_a_failure(server: ServerClient) -> None:
    with pytest.raises(AssertionError, match="500"):
        check_response(b"HTTP/1.1 500 Internal Server Error", b"", b"GET /")


def send_mutated_requests(server: ServerClient, count: int, seed: int) -> list[int]:
    """Send mutated requests over connections that are reused, and return the statuses."""
    rng = random.Random(seed)
    seeds = list(list_valid_requests(server))
    statuses: list[int] = []
    while len(statuses) < count:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            reader = connection.makefile("rb")
            while len(statuses) < count:
                sent = mutate_request(rng, rng.choice(seeds))
                connection.sendall(sent)
                head, body = read_response(reader)
                statuses.append(check_response(head, body, sent))
                if b"connection: close" in head.lower():
                    break
    return statuses


def list_valid_requests(server: ServerClient) -> Iterator[tuple[bytes, bytes, bytes]]:
    """A valid request for every route: method, path, body."""
    server.create_router(feedback="members", policy="distinct")  # waits until it is compiled
    router = server.create_router(feedback="members", policy="random")
    known = {"name": router.rpartition("/")[2], "id": server.decide(router)["id"]}
    known["tenant"] = "acme"
    decision = {"context": "a", "available": ["ann", "bob"], "key": "k", "defer": False}
    reward = {
        "value": 0.5,
        "spend": {"usd": {"ann": 1.5, "bob": 1}, "junior": 1},
        "key": "r",
        "members": {"ann": 0.5, "bob": True},
        "winner": "ann",
    }
    bodies: dict[str, Any] = {
        "create_router": {
            "name": known["name"],
            "problem": FIVE_EXPERTS,
            "policy": "distinct",
            "feedback": "members",
            "wait": 9.5,
        },
        "edit_router": {
            "pause": ["ann"],
            "limits": FIVE_EXPERTS["limits"],
            "wait": None,
            "version": 1,
        },
        "set_tenant": {"limits": [{"cost": "usd", "at_most": 5, "per": "month"}]},
        "learn_rounds": {"rounds": [{"panel": ["ann", "bob"], "reward": 1}], "after": 0},
        "create_decision": decision,
        "create_decisions": {"decisions": [decision, {}]},
        "replace_member": {"failed": "ann", "available": ["bob", "cat"]},
        "create_reward": reward,
        "personalizer_reward": reward,
        "create_rewards": {"rewards": [{"decision": known["id"], **reward}]},
        "personalizer_rank": {"actions": [{"id": "ann"}], "contextFeatures": [{"a": {"b": 1}}]},
        "create_chat_completion": {
            "model": "bylot/none",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
        },
        "create_response": {
            "model": "bylot/none",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            "text": {"format": {"type": "text"}},
            "tools": [{"type": "function", "name": "f"}],
        },
        "create_feedback": {"inference_id": known["id"], "metric_name": "m", "value": 0.5},
        "create_outcome": {
            "replay_id": known["id"],
            "target": "route",
            "verdict": "good_fit",
            "score": 0.5,
        },
    }
    for route in ROUTES:
        if route.method != "DELETE":
            body = json.dumps(bodies[route.function.__name__]).encode() if route.body else b""
            yield route.method.encode(), route.path.format(**known).encode(), body


def mutate_request(rng: random.Random, seed: tuple[bytes, bytes, bytes]) -> bytes:
    """A request with some bytes of its path or body changed; its head stays HTTP."""
    method, path, body = seed
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        position = rng.randrange(len(body) + 1)
        cut = position + rng.choice([0, 1, 3])
        fragment = rng.choice(
            [*FRAGMENTS, body[position : position + 9], bytes([rng.randrange(256)])]
        )
        body = body[:position] + fragment + body[cut:]
    if rng.random() < 0.2:
        position = rng.randrange(1, len(path) + 1)
        path = (
            path[:position]
            + rng.choice([b"%00", b"%ff", b"a", b"/", b"?limit=x"])
            + path[position:]
        )
    if rng.random() < 0.05:
        method = rng.choice([b"GET", b"POST", b"PUT", b"PATCH", b"OPTIONS"])
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % (
        method,
        path,
    )
    return head + b"content-length: %d\r\n\r\n%s" % (len(body), body)


def read_response(reader: Any) -> tuple[bytes, bytes]:
    """Read one response: head and body."""
    lines = []
    while (line := reader.readline()) not in (b"\r\n", b""):
        lines.append(line)
    head = b"".join(lines)
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head, reader.read(int(length or b"0"))


def check_response(head: bytes, body: bytes, sent: bytes) -> int:
    """The status of a response, which is a success or an error in the documented shape."""
    status = int(head.split(b" ")[1])
    assert status < 500, (status, body, sent)
    if status >= 400:
        assert set(json.loads(body)) == {"error"}, (status, body, sent)
    return status
