"""Scorers of the gateway: what they say about answers, and what they refuse."""

import asyncio
import json
import math
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from bylot.errors import BylotError
from bylot.gateway import scoring
from bylot.gateway.answers import Answer, Scorer, ScorerError, Verdict
from bylot.gateway.check_process import CheckProcess
from bylot.gateway.config import ScorerEntry
from bylot.gateway.entry_settings import name_source
from bylot.gateway.scoring import check_scores, make_scorer
from bylot.gateway.text_scorers import JsonSchemaScorer, JsonSchemaSettings
from scripted_models import QUESTION, ScriptedModel, make_answer, make_answers, make_tool_call

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

EXPECTED = {**QUESTION, "metadata": {"bylot_expected": "Paris"}}
PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}
CATASTROPHE = "a" * 60 + "!"  # for (a+)+$: more steps than the universe has seconds


def make(session: aiohttp.ClientSession | None = None, **entry: dict[str, Any]) -> Scorer:
    """The scorer of an entry of one kind."""
    return make_scorer(ScorerEntry(**entry), ScriptedModel(), session=session)


def score(scorer: Scorer, request: Mapping[str, Any], *answers: Answer) -> dict[str, float]:
    """The scores of answers."""
    return asyncio.run(scorer.score(request, answers)).scores


@pytest.fixture
def checks() -> Iterator[CheckProcess]:
    """A process that gives up soon."""
    process = CheckProcess(job_s=0.5)
    yield process
    process.close()


# exact


def test_exact_compares_the_text_with_the_expected_one() -> None:
    answers = make_answers({"a": " Paris\n", "b": "paris", "c": "Lyon", "d": "It is Paris"})
    assert score(make(exact={}), EXPECTED, *answers) == {"a": 1, "b": 0, "c": 0, "d": 0}
    folded = score(make(exact={"ignore_case": True}), EXPECTED, *answers)
    assert folded == {"a": 1, "b": 1, "c": 0, "d": 0}


def test_exact_extracts_the_last_match() -> None:
    expected = {**QUESTION, "metadata": {"bylot_expected": "C"}}
    answers = make_answers({"a": "is (A)? No: is (C).", "b": "is (C)? No: is (A).", "c": "C"})
    scorer = make(exact={"extract": r"is \(([A-J])\)"})
    assert score(scorer, expected, *answers) == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("metadata", [{}, None, {"other": "x"}, {"bylot_expected": None}])
def test_without_an_expected_text_nobody_has_a_score(metadata: Any) -> None:
    request = {**QUESTION, "metadata": metadata}
    assert score(make(exact={}), request, make_answer("a")) == {}
    assert score(make(exact={}), QUESTION, make_answer("a")) == {}


def test_an_expected_value_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ScorerError, match="bylot_expected is not a text"):
        score(make(exact={}), {"metadata": {"bylot_expected": 7}}, make_answer("a"))


@pytest.mark.parametrize(
    "entry",
    [
        {"exact": {}},
        {"exact": {"extract": ".*"}},
        {"regex": {"pattern": ".*"}},
        {"json_schema": {"schema": {}}},
    ],
    ids=str,
)
def test_refusals_and_empty_texts_are_wrong_and_tool_calls_unknown(entry: dict[str, Any]) -> None:
    request = {**QUESTION, "metadata": {"bylot_expected": ""}}  # even if nothing is expected
    refusal = make_answer("refusal", None, refusal="I cannot help with that.")
    answers = [refusal, make_answer("empty", " "), make_tool_call("tool")]
    assert score(make(**entry), request, *answers) == {"refusal": 0, "empty": 0}


def test_a_tool_call_with_a_text_is_scored_by_its_text() -> None:
    answer = make_answer("a", "Paris", tool_calls=[{"id": "1"}])
    assert score(make(regex={"pattern": "Paris"}), QUESTION, answer) == {"a": 1}


# regex, and what it is guarded against


def test_regex_searches_the_text() -> None:
    answers = make_answers({"a": "I think: PARIS", "b": "Lyon", "c": "Paris"})
    assert score(make(regex={"pattern": r"\bParis\b"}), QUESTION, *answers) == {
        "a": 0,
        "b": 0,
        "c": 1,
    }
    folded = {"pattern": "paris", "ignore_case": True}
    assert score(make(regex=folded), QUESTION, *answers) == {"a": 1, "b": 0, "c": 1}


def test_any_text_reaches_the_pattern_as_it_is() -> None:
    odd = "\ud800 \x00 \u2028 \U0001f600 é"
    answers = make_answers({"a": odd, "b": "é" * 300_000})
    assert score(make(regex={"pattern": "\U0001f600 é$"}), QUESTION, *answers) == {"a": 1, "b": 0}
    assert score(make(regex={"pattern": "\ud800"}), QUESTION, answers[0]) == {"a": 1}


def test_a_catastrophic_pattern_stops_neither_the_event_loop_nor_later_jobs(
    checks: CheckProcess,
) -> None:
    async def count_ticks() -> tuple[int, list[str | None]]:
        await checks.find("x", ["x"])  # started
        job = asyncio.create_task(checks.find("(a+)+$", [CATASTROPHE]))
        ticks = 0
        while not job.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(ScorerError, match=r"longer than 0\.5 s"):
            await job
        return ticks, await checks.find("b(.)", ["abc", "", "bd be"])

    ticks, after = asyncio.run(count_ticks())
    assert ticks >= 5
    assert after == ["c", None, "e"]


def test_the_process_starts_again_if_it_was_killed(checks: CheckProcess) -> None:
    assert asyncio.run(checks.find("x", ["x"])) == ["x"]
    assert checks.process is not None
    checks.process.kill()
    checks.process.wait()
    assert asyncio.run(checks.find("x", ["x"])) == ["x"]


def test_no_process_is_started_for_nothing(checks: CheckProcess) -> None:
    assert asyncio.run(checks.find("x", [])) == []
    assert checks.process is None


# json_schema


def test_json_schema_validates_the_whole_text() -> None:
    texts = {"good": '{"age": 7}', "wrong": '{"age": "7"}', "fence": '```\n{"age": 7}\n```'}
    texts |= {"text": "seven", "nan": '{"age": NaN}', "deep": "[" * 100_000}
    found = score(make(json_schema={"schema": PERSON}), QUESTION, *make_answers(texts))
    assert found == {**dict.fromkeys(texts, 0.0), "good": 1.0}


def test_without_a_schema_that_of_the_request_counts() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answers = make_answers({"a": '{"age": 7}', "b": "{}"})
    scorer = make(json_schema={})
    assert score(scorer, {**QUESTION, "response_format": form}, *answers) == {"a": 1, "b": 0}
    assert score(scorer, QUESTION, *answers) == {}
    assert score(scorer, {**QUESTION, "response_format": {"type": "text"}}, *answers) == {}


def request_with(schema: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    return {**QUESTION, "response_format": form}


def test_schemas_of_requests_can_do_no_harm(checks: CheckProcess) -> None:
    scorer = JsonSchemaScorer("x", JsonSchemaSettings(), checks)
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    doubling["d60"] = {}
    hostile: dict[str, Any] = {
        "longer than 0.5 s": {"$ref": "#/$defs/d0", "$defs": doubling},
        "longer than 0.5": {"pattern": "(a+)+$"},
        "RecursionError": {"$ref": "#"},
        "SchemaError": {"type": "nonsense"},
        "longer than 100000": {"const": "x" * 100_000},
    }
    for fault, schema in hostile.items():
        with pytest.raises(ScorerError, match=fault):
            score(scorer, request_with(schema), make_answer("a", json.dumps(CATASTROPHE)))
    assert score(scorer, request_with({"type": "string"}), make_answer("a", '"x"')) == {"a": 1}


def test_a_schema_of_a_request_fetches_nothing(checks: CheckProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        scorer = JsonSchemaScorer("x", JsonSchemaSettings(), checks)
        with pytest.raises(ScorerError, match="Referencing"):
            score(scorer, request_with({"$ref": url}), make_answer("a", "{}"))
        with pytest.raises(BlockingIOError):  # nobody has connected
            listener.accept()


def test_a_missing_jsonschema_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylot.gateway.text_scorers.find_spec", lambda name: None)
    with pytest.raises(BylotError, match=r"needs jsonschema; pip install '\.\[serve\]'"):
        make(json_schema={})


# python

FUNCTIONS = """
import asyncio, threading, time
from bylot.gateway.answers import Verdict

def by_member(request, answers):
    return {one.member: float("Paris" in one.text) for one in answers}

def in_order(request, answers):
    return [0.25, None, True]

async def later(request, answers):
    await asyncio.sleep(0)
    return {"a": 0.5}

class Judge:
    async def __call__(self, request, answers):
        return {"a": 0.75}

judge = Judge()

def verdict(request, answers):
    return Verdict(scores={"a": 1}, source="mine", winner="a", cost=0.5)

def wrong_winner(request, answers):
    return Verdict(scores={}, source="mine", winner="z")

def where(request, answers):
    return {"a": float(threading.current_thread() is threading.main_thread())}

def slow(request, answers):
    time.sleep(0.5)

async def slow_async(request, answers):
    await asyncio.sleep(60)

def broken(request, answers):
    raise KeyError("nothing")

not_callable = 3
"""
ABC = make_answers({"a": "Paris", "b": "Lyon", "c": "Nice"})


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of functions, of which one is an entry point."""
    (tmp_path / "own_scorers.py").write_text(FUNCTIONS)
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('at import')")
    package = tmp_path / "own_scorers-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: own-scorers\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[bylot.scorers]\nmine = own_scorers:by_member\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "own_scorers", raising=False)
    return "own_scorers"


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("own_scorers:by_member", {"a": 1, "b": 0, "c": 0}),
        ("mine", {"a": 1, "b": 0, "c": 0}),
        ("own_scorers:in_order", {"a": 0.25, "c": 1}),
        ("own_scorers:later", {"a": 0.5}),
        ("own_scorers:judge", {"a": 0.75}),
        ("own_scorers:where", {"a": 0}),
    ],
)
def test_a_function_scores(functions: str, name: str, scores: dict[str, float]) -> None:
    scorer = make(python={"function": name})
    assert score(scorer, QUESTION, *ABC) == scores
    assert scorer.source == f"python:{name}"


def test_a_function_may_return_a_verdict(functions: str) -> None:
    scorer = make(python={"function": f"{functions}:verdict"})
    found = asyncio.run(scorer.score(QUESTION, ABC))
    source = "python:own_scorers:verdict"
    assert found == Verdict(scores={"a": 1.0}, source=source, winner="a", cost=0.5)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("broken", "KeyError: 'nothing'"),
        ("slow", "took longer than 0.1 s"),
        ("slow_async", "took longer than 0.1 s"),
        ("wrong_winner", "the winner did not answer: 'z'"),
    ],
)
def test_a_function_that_fails_is_a_scorer_error(functions: str, name: str, fault: str) -> None:
    scorer = make(python={"function": f"{functions}:{name}", "timeout_s": 0.1})
    with pytest.raises(ScorerError, match=fault):
        score(scorer, QUESTION, *ABC)


def test_a_slow_function_does_not_block_the_event_loop(functions: str) -> None:
    async def count_ticks() -> int:
        scorer = make(python={"function": f"{functions}:slow"})
        job, ticks = asyncio.ensure_future(scorer.score(QUESTION, ABC)), 0
        while not job.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(ScorerError, match="got None"):
            await job
        return ticks

    assert asyncio.run(count_ticks()) >= 5


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("own_scorers:missing", "cannot be loaded.*install the package"),
        ("no_such_module_:f", "cannot be loaded.*install the package"),
        ("own_broken:f", "at import.*install the package"),
        ("own_scorers:not_callable", "expected the name of a function"),
        ("nobody", "expected package.module:function, or an entry point of bylot.scorers"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_explained(
    functions: str, name: str, fault: str
) -> None:
    with pytest.raises(BylotError, match=fault) as found:
        make(python={"function": name})
    assert "scorer.python.function" in str(found.value)


# what any scorer may say


@pytest.mark.parametrize("good", [0, 1, True, 0.5, np.float32(0.5), np.int64(1)], ids=repr)
def test_scores_are_numbers_in_the_unit_interval(good: Any) -> None:
    assert check_scores("x", {"a": good}, ABC) == {"a": float(good)}
    assert check_scores("x", [good, None, good], ABC) == {"a": float(good), "c": float(good)}


@pytest.mark.parametrize(
    "wrong",
    [-0.01, 1.01, math.nan, math.inf, "1", [1], 1j, 10**400],
    ids=lambda value: repr(value)[:10],
)
def test_other_scores_are_refused(wrong: Any) -> None:
    with pytest.raises(ScorerError, match=r"score of a: expected a number in \[0, 1\]"):
        check_scores("x", {"a": wrong}, ABC)


@pytest.mark.parametrize("wrong", [None, 1, "abc", [1, 1], {"z": 1}, {("a",): 1}], ids=repr)
def test_scores_of_others_or_of_no_one_are_refused(wrong: Any) -> None:
    with pytest.raises(ScorerError, match=r"expected scores by member|did not answer"):
        check_scores("x", wrong, ABC)


def test_a_source_is_a_short_key() -> None:
    long = [name_source("python", "x" * 90 + end) for end in ("a", "b")]
    assert long[0] != long[1]
    for name in (*long, name_source("judge", "\n\x00é")):
        assert name.isascii()
        assert name.isprintable()
        assert len(name) <= 64


# http


@asynccontextmanager
async def serve(handler: Handler) -> AsyncIterator[str]:
    """The address of a service on this machine."""
    app = web.Application()
    app.router.add_post("/score", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/score"
    finally:
        await runner.cleanup()


def ask_service(handler: Handler, **settings: Any) -> Verdict:
    """The verdict of a service."""

    async def ask() -> Verdict:
        async with serve(handler) as url, aiohttp.ClientSession() as session:
            return await make(session, http={"url": url, **settings}).score(QUESTION, ABC)

    return asyncio.run(ask())


def respond(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    """A service that always responds with this."""
    text = content if isinstance(content, str) else json.dumps(content)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=text, status=status, headers=headers)

    return handler


def test_a_service_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORER_KEY", "s3cret")
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.headers["x-key"], await request.json()))
        return web.json_response({"scores": {"a": 1, "c": None}, "winner": "a", "note": "ignored"})

    found = ask_service(handler, headers={"x-key": "os.environ/SCORER_KEY"})
    assert found == Verdict(scores={"a": 1.0}, source="http", winner="a")
    ((key, body),) = seen
    assert key == "s3cret"
    assert body["request"] == QUESTION
    assert body["answers"][1] == {
        "member": "b",
        "text": "Lyon",
        "message": {"role": "assistant", "content": "Lyon"},
    }


def test_a_service_may_return_a_list() -> None:
    assert ask_service(respond({"scores": [0, 0.5, 1]})).scores == {"a": 0, "b": 0.5, "c": 1}


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (respond("{}", 500), "status 500"),
        (respond("", 302, {"location": "http://127.0.0.1:9/"}), "status 302"),
        (respond("no JSON"), "not a JSON object"),
        (respond([1]), "not a JSON object"),
        (respond("[" * 100_000), "not a JSON object"),
        (respond({}), "expected scores by member or a list of 3, got None"),
        (respond({"scores": [1]}), "got list of 1"),
        (respond({"scores": {"a": 2}}), "expected a number"),
        (respond({"scores": {}, "winner": ["a"]}), "did not answer"),
        (respond('{"scores": {"a": 1}}' + " " * 1_000_000), "more than 1000000 bytes"),
    ],
)
def test_a_service_that_responds_otherwise_is_a_scorer_error(handler: Handler, fault: str) -> None:
    with pytest.raises(ScorerError, match=fault):
        ask_service(handler)


def test_a_service_that_does_not_respond_is_a_scorer_error() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    with pytest.raises(ScorerError, match=r"no response within 0\.1 s"):
        ask_service(hang, timeout_s=0.1)

    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(ScorerError, match="http: Server"):
        ask_service(drop)


def test_a_service_without_a_session_can_be_declared_but_not_asked() -> None:
    scorer = make(http={"url": "http://127.0.0.1:9/"})
    with pytest.raises(ScorerError, match="no session"):
        score(scorer, QUESTION, *ABC)


# settings


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"exact": {"ignore_cases": True}}, r"unknown setting 'ignore_cases'; did you mean"),
        ({"exact": {"ignore_case": "yes"}}, r"exact\.ignore_case 'yes': expected true or false"),
        ({"exact": {"extract": "("}}, r"exact\.extract '\(': expected a regular expression"),
        ({"regex": {}}, r"regex\.pattern is missing.*give pattern"),
        ({"regex": {"pattern": 3}}, r"regex\.pattern 3: expected a regular expression"),
        ({"regex": {"pattern": "[a"}}, r"regex\.pattern '\[a'.*in YAML, put it in single quotes"),
        ({"regex": {"pattern": "x" * 2_000}}, "expected a regular expression"),
        ({"json_schema": {"schema": 1}}, r"json_schema\.schema 1: expected a JSON schema"),
        (
            {"json_schema": {"schema": {"properties": {"a": {"type": "x"}}}}},
            r"json_schema\.schema\.properties\.a\.type: 'x' is not valid.*correct the schema",
        ),
        ({"python": {}}, r"python\.function is missing"),
        ({"http": {"url": "ftp://x/"}}, r"http\.url: expected http"),
        ({"http": {"url": "http://h:99999999/"}}, r"http\.url: expected http"),
        ({"http": {"url": "http://x/", "timeout_s": 0}}, r"http\.timeout_s 0: expected seconds"),
        ({"http": {"url": "http://x/", "headers": {"k": "os.environ/NO_SUCH"}}}, "export NO_SUCH"),
        ({"judge": {}}, r"judge\.model is missing"),
        ({"judge": {"model": "m", "max_chars": 1}}, r"judge\.max_chars 1: expected a number"),
        ({"judge": {"model": "m", "temperature": 1}}, "unknown setting 'temperature'"),
        ({}, "one of exact, regex"),
        ({"exact": {}, "regex": {"pattern": "x"}}, "'exact, regex': expected one of"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_by_name(entry: dict[str, Any], fault: str) -> None:
    with pytest.raises(BylotError, match=fault) as found:
        make(**entry)
    assert "scorer" in str(found.value)


@pytest.mark.parametrize("url", ["http://user:s3cret@host/", "s3cret", 3])
def test_an_error_does_not_repeat_a_secret(url: Any) -> None:
    with pytest.raises(BylotError, match="without a user") as found:
        make(http={"url": url})
    assert "s3cret" not in str(found.value)
    with pytest.raises(BylotError, match=r"headers: expected texts by name") as found:
        make(http={"url": "http://x/", "headers": ["s3cret"]})
    assert "s3cret" not in str(found.value)


def test_threads_of_functions_are_bounded(functions: str) -> None:
    async def hang_often() -> int:
        scorer = make(python={"function": f"{functions}:slow", "timeout_s": 0.05})
        calls = [scorer.score(QUESTION, ABC) for _ in range(20)]
        await asyncio.gather(*calls, return_exceptions=True)
        return sum(one.name.startswith("bylot-scorer") for one in threading.enumerate())

    before = sum(one.name.startswith("bylot-scorer") for one in threading.enumerate())
    assert asyncio.run(hang_often()) - before <= scoring.MAX_SCORER_THREADS
