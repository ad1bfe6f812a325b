"""The conformance checks, on the upstream of tests itself and on the gateway."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from compared_completions import compare, join_chunks
from conformance import CHECKS, Target
from gateway_target import gateway_target
from upstreams import ReplayUpstream

KINDS = ["upstream", "gateway-pick", "gateway-first"]


@pytest.fixture(scope="module", params=KINDS)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The upstream itself, and gateways before one."""
    kind, _, answer = request.param.partition("-")
    if kind == "upstream":
        with ReplayUpstream(key="s3cret") as upstream:
            yield Target(upstream.url, "a", upstream, "s3cret")
    else:
        with gateway_target(tmp_path_factory.mktemp("gateway"), answer) as found:
            yield found


@pytest.mark.parametrize("name", CHECKS)
def test_the_endpoint_conforms(target: Target, name: str) -> None:
    CHECKS[name](target)


@pytest.fixture(scope="module")
def completion() -> dict[str, Any]:
    with ReplayUpstream() as upstream:
        return Target(upstream.url, "a", upstream).create_raw()


def test_ids_times_models_sums_and_our_object_may_differ(completion: dict[str, Any]) -> None:
    other = {**completion, "id": "x", "created": 7, "model": "bylot/r", "bylot": {"winner": "a"}}
    other["usage"] = {"prompt_tokens": 30, "completion_tokens": 60, "total_tokens": 90}
    other["system_fingerprint"] = None
    compare(completion, other)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("object",), "chat.completion.chunk"),
        (("choices",), []),
        (("choices", 0, "finish_reason"), "length"),
        (("choices", 0, "index"), 1),
        (("choices", 0, "logprobs"), {}),
        (("choices", 0, "message", "content"), "other"),
        (("choices", 0, "message", "role"), "user"),
        (("choices", 0, "message", "tool_calls"), []),
        (("choices", 0, "message", "refusal"), ""),
        (("usage",), None),
        (("usage", "total_tokens"), 1),
        (("extra",), 1),
        (("id",), None),
    ],
    ids=str,
)
def test_the_comparison_notices_any_other_difference(
    completion: dict[str, Any], path: tuple[Any, ...], value: Any
) -> None:
    other = copy.deepcopy(completion)
    at: Any = other
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    with pytest.raises(AssertionError):
        compare(completion, other)


def test_the_comparison_notices_a_missing_field(completion: dict[str, Any]) -> None:
    other = copy.deepcopy(completion)
    del other["choices"][0]["logprobs"]
    with pytest.raises(AssertionError):
        compare(completion, other)


def test_a_stream_is_joined_wherever_it_was_cut() -> None:
    body: dict[str, Any] = {"stream_options": {"include_usage": True}}
    joined = []
    for size in (1, 7, 1000):
        with ReplayUpstream(chunk_chars=size) as upstream:
            joined.append(join_chunks(Target(upstream.url, "a", upstream).stream(**body)))
    for one in joined[1:]:
        compare(joined[0], one)
    cut = copy.deepcopy(joined[0])
    cut["choices"][0]["message"]["content"] = joined[0]["choices"][0]["message"]["content"][:-1]
    with pytest.raises(AssertionError):
        compare(joined[0], cut)
