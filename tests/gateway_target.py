"""The gateway as a target of the conformance checks: where a test starts one on upstreams."""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conformance import Target
from upstreams import ReplayUpstream

VOICE = "a"  # all members answer as this model, so that the winner does not matter


class RunningGateway(NamedTuple):
    """Where a gateway listens; model: `bylot/ROUTER`; key: one that may ask it."""

    base_url: str
    model: str
    key: str


@contextlib.contextmanager
def start_gateway(
    folder: Path, upstreams: Sequence[ReplayUpstream], answer: str = "pick", **gateway: Any
) -> Iterator[RunningGateway]:
    """A server whose router has all models of the upstreams as experts, until the end of a test.

    folder: for its store; gateway: more settings of `GatewayEntry`. Requests without a key or with
    a wrong one are refused. To be connected: until then the test is skipped.
    """
    try:
        importlib.import_module("bylot.server.chat_endpoints")
    except ModuleNotFoundError:
        pytest.skip("no gateway yet: bylot.server.chat_endpoints cannot be imported")
    raise NotImplementedError("tests/gateway_target.py: start_gateway must start a server")
    yield


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
