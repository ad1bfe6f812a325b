"""Mistakes that people make, and what bylot answers: the place, the cause and what to do.

One table for Python, files, HTTP and the command line. No mistake is accepted without a word.
"""

import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from bylot import Client, Problem, Router, at_least, at_most, share, simulate
from bylot.cli import main
from bylot.environments import Noisy
from bylot.errors import BylotError, BylotWarning
from bylot.server.auth import issue_key
from bylot.store import open_store
from live_server import ServerClient, live_server

NAMES = ["ann", "bob", "cat", "eve"]
USD = {"usd": [4.0, 3.0, 1.0, 0.5]}
POOL = """\
draws: 2
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 4.0}
  - {name: bob, usd: 3.0}
  - {name: cat, usd: 1.0}
  - {name: eve, usd: 0.5}
groups:
  junior: [cat, eve]
limits:
  - {cost: usd, at_most: 4.5}
"""
LIMIT = "{cost: usd, at_most: 4.5}"
CONFIG = """\
store: sqlite:///FOLDER/checked.db
model_list:
  - {model_name: small, litellm_params: {model: openai/s, api_base: "http://localhost:9/v1"}}
  - {model_name: medium, litellm_params: {model: openai/m, api_base: "http://localhost:9/v1"}}
  - {model_name: large, litellm_params: {model: openai/l, api_base: "http://localhost:9/v1"}}
routers:
  assistant:
    models: [{name: small, usd: 1}, {name: medium, usd: 2}]
    costs: {usd: US dollars}
    draws: 2
    gateway: {answer: pick, scorer: {judge: {model: large}}}
"""
NOBODY = "http://127.0.0.1:9"  # the port of discard, on which nothing listens
WRONG_ID = "triage.1.999.00000000"


class Bench(NamedTuple):
    """Where mistakes are made: a folder, a server without keys, and one with keys.

    key: it may decide, and nothing else
    """

    folder: Path
    server: ServerClient
    guarded: ServerClient
    key: str

    def write(self, name: str, text: str) -> Path:
        """Write a file and return its path."""
        path = self.folder / name
        path.write_text(text.replace("FOLDER", str(self.folder)), encoding="utf-8")
        return path

    def fill(self, text: str) -> str:
        """Fill in what only this bench knows."""
        return text.format(
            pool=self.folder / "pool.yaml",
            many=self.folder / "many.yaml",
            key=self.key,
            server=self.server.base_url,
            guarded=self.guarded.base_url,
            decision=self.server.decide("/v1/routers/triage")["id"] if "{dec" in text else "",
        )

    def run(self, *words: str) -> str:
        """Run a verb and return what it prints, if it fails or warns."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main([self.fill(word) for word in words])
            except SystemExit as ended:
                code = int(ended.code or 0)
        said = f"{out.getvalue()}{err.getvalue()}"
        return said if code or "warning" in said.lower() else ""


Answer = Callable[[Bench], str]


class Mistake(NamedTuple):
    """What is done wrong, and what the answer must contain."""

    where: str
    what: str
    place: str
    cause: str
    remedy: str
    make: Answer


def in_python(what: str, place: str, cause: str, remedy: str, act: Callable[..., Any]) -> Mistake:
    """A mistake in Python; the answer is the errors and warnings of bylot."""

    def make(bench: Bench) -> str:
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            try:
                act(*[bench] * act.__code__.co_argcount)
            except BylotError as error:
                return str(error)
        return "\n".join(str(x.message) for x in met if isinstance(x.message, BylotWarning))

    return Mistake("Python", what, place, cause, remedy, make)


def in_file(what: str, old: str, new: str, place: str, cause: str, remedy: str) -> Mistake:
    """A mistake in a problem file, which `bylot problem check` reads."""

    def make(bench: Bench) -> str:
        assert old in POOL
        path = bench.write("wrong.yaml", POOL.replace(old, new, 1))
        return bench.run("problem", "check", str(path))

    return Mistake("file", what, place, cause, remedy, make)


def in_config(what: str, old: str, new: str, place: str, cause: str, remedy: str) -> Mistake:
    """A mistake in a configuration file, which `bylot serve --check` reads."""

    def make(bench: Bench) -> str:
        assert old in CONFIG
        path = bench.write("bylot.yaml", CONFIG.replace(old, new, 1))
        return bench.run("serve", "--check", "--config", str(path))

    return Mistake("file", what, place, cause, remedy, make)


def in_http(
    what: str, request: str, body: Any, place: str, cause: str, remedy: str, **options: Any
) -> Mistake:
    """A mistake in a request; the answer is the status, the field and the message."""

    def make(bench: Bench) -> str:
        method, path = bench.fill(request).split()
        client = bench.guarded if "headers" in options else bench.server
        given = {name: bench.fill(text) for name, text in options.get("headers", {}).items()}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return describe_response(client.request(method, path, **content, headers=given))

    return Mistake("HTTP", what, place, cause, remedy, make)


def in_create(what: str, changes: Any, place: str, cause: str, remedy: str) -> Mistake:
    """A mistake in a request to create a router."""
    pool = {"experts": NAMES, "costs": USD, "draws": 2, **changes.pop("problem", {})}
    body = {"name": what.replace(" ", "-"), "policy": "random", "problem": pool, **changes}
    return in_http(what, "POST /v1/routers", body, place, cause, remedy)


def in_shell(what: str, words: str, place: str, cause: str, remedy: str) -> Mistake:
    """A mistake on the command line."""
    return Mistake("shell", what, place, cause, remedy, lambda bench: bench.run(*words.split()))


def describe_response(response: httpx.Response) -> str:
    """The status, the field and the message of an error, or the warnings of a success."""
    if response.status_code < 300:
        return "; ".join(response.json().get("warnings", ()))
    error = response.json()["error"]
    field = error.get("field") or error.get("param")
    return f"{response.status_code} in {field}: {error['message']}"


def make_pool(limits: Any = (), **changes: Any) -> Problem:
    return Problem(NAMES, USD, limits, **{"draws": 2, **changes})


def make_router(**changes: Any) -> Router:
    """A router that compiles quickly."""
    return Router(make_pool(), "random", **changes)


def report(**given: Any) -> None:
    """Report something about a decision in memory."""
    router = make_router()
    router.reward(router.decide().id, **given)


def decide_on_server(bench: Bench, router: str) -> None:
    """Ask a server for a decision with the client library."""
    with Client(str(bench.server.base_url)) as client:
        client.router(router).decide()


def reward_on_server(bench: Bench, router: str, id: str) -> None:
    """Report the reward of a decision with the client library."""
    with Client(str(bench.server.base_url)) as client:
        client.router(router).reward(id, 0.5)


def create_on_server(bench: Bench, problem: Problem) -> None:
    """Create a router with the client library."""
    with Client(str(bench.server.base_url)) as client:
        client.create("created", problem)


TIGHT = [at_most("usd", 1.2)]  # of 4.0, 3.0, 1.0 and 0.5: no two of them
WORLD = Noisy([[0.1, 0.2, 0.3, 0.4]])
REWARD = "POST /v1/decisions/{decision}/reward"
CHAT = {"model": "bylot/nobody", "messages": [{"role": "user", "content": "hi"}]}
BATCH = {"decisions": [{"contxt": "icu"}]}
WITH_KEY = {"headers": {"authorization": "Bearer {key}"}}
AS_TEXT = {"headers": {"content-type": "text/plain", "authorization": "Bearer {key}"}}

PYTHON = [
    in_python(
        "more draws than experts", "draws", "9", "draw fewer", lambda: Router(make_pool(draws=9))
    ),
    in_python(
        "more draws under a limit",
        "draws",
        "9",
        "draw fewer",
        lambda: Router(make_pool(TIGHT, draws=9)),
    ),
    in_python(
        "simulated draws",
        "draws",
        "9",
        "draw fewer",
        lambda: simulate(make_pool(draws=9), WORLD, "distinct", rounds=3),
    ),
    in_python(
        "panels smaller than declared",
        "at_most('usd', 1.2)",
        "panels of 2 different experts cannot keep",
        "declare with min_draws",
        lambda: Router(make_pool(TIGHT)),
    ),
    in_python(
        "panels smaller than declared on a server",
        "at_most('usd', 1.2)",
        "panels of 2 different experts cannot keep",
        "declare with min_draws",
        lambda bench: create_on_server(bench, make_pool(TIGHT)),
    ),
    in_python(
        "misspelled field",
        "'perod'",
        "unknown field",
        "did you mean 'period'?",
        lambda: make_pool(perod=5),
    ),
    in_python(
        "field that files have",
        "'contexts'",
        "unknown field",
        "'traffic', 'groups'; use one of these",
        lambda: make_pool(contexts=["icu"]),
    ),
    in_python("no draws", "'draws'", "missing field", "add draws=2", lambda: Problem(NAMES, USD)),
    in_python(
        "unknown cost",
        "at_most('uds'",
        "unknown cost",
        "did you mean 'usd'?",
        lambda: make_pool([at_most("uds", 3)]),
    ),
    in_python(
        "unknown member",
        "share 'junior'",
        "unknown member 'cta'",
        "did you mean 'cat'?",
        lambda: make_pool([at_least(share("junior", ["cta"]), 0.3)]),
    ),
    in_python(
        "unknown group",
        "share 'jnior'",
        "has no members",
        "did you mean 'junior'?",
        lambda: make_pool([at_least(share("jnior"), 0.3)], groups={"junior": ["cat"]}),
    ),
    in_python(
        "share beyond all draws",
        "at_least",
        "30",
        "write 0.04 for 4%",
        lambda: at_least(share("junior", ["cat"]), 30, per="draw"),
    ),
    in_python(
        "short row",
        "cost 'usd'",
        "(3,)",
        "one number for each of the 4 experts",
        lambda: Problem(NAMES, {"usd": [1, 2, 3]}, draws=2),
    ),
    in_python(
        "negative bound", "limit on 'usd'", "-1", "0 or a number", lambda: at_most("usd", -1)
    ),
    in_python(
        "misspelled window",
        "per",
        "'dayly'",
        "did you mean 'day'?",
        lambda: at_most("usd", 500, per="dayly"),  # type: ignore[arg-type]
    ),
    in_python(
        "misspelled zone",
        "zone",
        "'Europe/Berln'",
        "did you mean 'Europe/Berlin'?",
        lambda: at_most("usd", 500, per="day", zone="Europe/Berln"),
    ),
    in_python(
        "limit without a list",
        "limits",
        "expected a list",
        "limits=[",
        lambda: make_pool(at_most("usd", 3)),
    ),
    in_python(
        "limits in conflict",
        "at_most('usd', 0.2)",
        "no policy",
        "use at_most('usd', 0.5)",
        lambda: make_pool([at_most("usd", 0.2)]),
    ),
    in_python(
        "misspelled policy",
        "policy",
        "'distnct'",
        "did you mean 'distinct'?",
        lambda: Router(make_pool(), "distnct"),
    ),
    in_python(
        "misspelled setting",
        "policy 'distinct'",
        "'epz'",
        "did you mean 'eps'?",
        lambda: Router(make_pool(), "distinct:epz=0.1"),
    ),
    in_python(
        "misspelled feedback",
        "feedback",
        "'member'",
        "'members'",
        lambda: make_router(feedback="member"),
    ),
    in_python(
        "feedback that is ignored",
        "random",
        "ignores scores of members",
        "noisy-or",
        lambda: make_router(feedback="members"),
    ),
    in_python(
        "reward out of range",
        "decision d0",
        "1.2",
        "rewards=(low, high)",
        lambda: report(value=1.2),
    ),
    in_python(
        "scores that were not declared",
        "decision d0",
        "takes no scores",
        "feedback='members'",
        lambda: report(members={"ann": 1.0}),
    ),
    in_python(
        "decision in place of its id",
        "decision id",
        "expected a string",
        "pass decision.id",
        lambda: make_router().reward(make_router().decide(), 0.5),  # type: ignore[arg-type]
    ),
    in_python(
        "misspelled expert",
        "available",
        "no expert 'an'",
        "did you mean 'ann'?",
        lambda: make_router().decide(available=["an"]),
    ),
    in_python(
        "name in place of a list",
        "available",
        "expected a list",
        "write available=['ann']",
        lambda: make_router().decide(available="ann"),
    ),
    in_python("negative seed", "seed", "-1", "a whole number from 0", lambda: make_router(seed=-1)),
    in_python(
        "no saved file",
        "/nowhere/router.npz",
        "does not exist",
        "written by save()",
        lambda: Router.load("/nowhere/router.npz"),
    ),
    in_python(
        "address without a scheme",
        "server address",
        "'localhost:8000'",
        "http://127.0.0.1:8000",
        lambda: Client("localhost:8000"),
    ),
    in_python(
        "unknown decision of a server",
        WRONG_ID,
        "no decision",
        "use the id that `decide` returned",
        lambda bench: reward_on_server(bench, "triage", WRONG_ID),
    ),
    in_python(
        "misspelled router of a server",
        "'triag'",
        "no router named",
        "check the spelling",
        lambda bench: decide_on_server(bench, "triag"),
    ),
]

FILES = [
    in_file("more draws than experts", "draws: 2", "draws: 9", "line 1", "draws 9", "draw fewer"),
    in_file(
        "panels smaller than declared",
        "4.5",
        "1.2",
        "usd at most 1.2",
        "panels of 2 different experts cannot keep",
        "with min_draws",
    ),
    in_file("unknown key", LIMIT, "{cost: usd, minimum: 1}", "line 11", "'minimum'", "'at_least'"),
    in_file(
        "misspelled key", LIMIT, "{cost: usd, at_mots: 4}", "line 11", "'at_mots'", "'at_most'?"
    ),
    in_file(
        "misspelled group",
        LIMIT,
        "{share: jnior, at_least: 0.3}",
        "line 11",
        "unknown group 'jnior'",
        "mean 'junior'?",
    ),
    in_file(
        "share without members",
        LIMIT,
        "{share: x, at_least: 0.3}",
        "line 11",
        "unknown group 'x'",
        "add members",
    ),
    in_file(
        "group in place of a cost",
        LIMIT,
        "{cost: junior, at_least: 0.3}",
        "line 11",
        "unknown cost 'junior'",
        "write share: junior",
    ),
    in_file(
        "misspelled window",
        LIMIT,
        "{cost: usd, at_most: 9, per: dayly}",
        "line 11",
        "'dayly'",
        "did you mean 'day'?",
    ),
    in_file(
        "misspelled zone",
        LIMIT,
        "{cost: usd, at_most: 9, per: day, zone: Europe/Berln}",
        "line 11",
        "'Europe/Berln'",
        "did you mean 'Europe/Berlin'?",
    ),
    in_file("no draws", "draws: 2\n", "", "line 1", "missing key 'draws'", "add draws:"),
    in_file(
        "text in place of a number",
        "usd: 4.0",
        "usd: 4 dollars",
        "line 4",
        "'4 dollars'",
        "expected a finite number",
    ),
    in_file("decimal comma", "usd: 4.0", 'usd: "4,0"', "line 4", "'4,0'", "write 4.0"),
    in_file(
        "expert twice", "name: bob", "name: ann", "line 5", "duplicate expert 'ann'", "rename one"
    ),
    in_file(
        "misspelled member",
        "[cat, eve]",
        "[cat, ev]",
        "line 9",
        "unknown member 'ev'",
        "mean 'eve'?",
    ),
    in_file(
        "misspelled cost",
        "name: bob, usd",
        "name: bob, uds",
        "line 5",
        "undeclared cost 'uds'",
        "mean 'usd'?",
    ),
    in_file(
        "limits in conflict", "4.5", "0.2", "line 11", "no policy can keep", "write at_most: 0.5"
    ),
    in_file(
        "key twice", "draws: 2", "draws: 2\ndraws: 3", "line 2", "duplicate key 'draws'", "keep one"
    ),
    in_file(
        "bracket left open",
        "[cat, eve]",
        "[cat, eve",
        "line 10",
        "not valid YAML",
        "check quotes, brackets",
    ),
    in_config("more draws than models", "draws: 2", "draws: 5", "line 10", "draws 5", "draw fewer"),
    in_config(
        "judge that is a member",
        "model: large}}",
        "model: small}}",
        "routers.assistant",
        "the judge 'small' is a member too",
        "name another model",
    ),
    in_config(
        "misspelled judge",
        "model: large}}",
        "model: lage}}",
        "line 11",
        "'lage'",
        "did you mean 'large'?",
    ),
    in_config(
        "misspelled model",
        "name: medium, usd",
        "name: mediun, usd",
        "line 8",
        "'mediun'",
        "did you mean 'medium'?",
    ),
    in_config(
        "misspelled setting of a gateway",
        "answer: pick",
        "anser: pick",
        "line 11",
        "unknown field 'anser'",
        "did you mean 'answer'?",
    ),
    in_config(
        "quorum beyond the panel",
        "answer: pick",
        "answer: pick, quorum: 3",
        "quorum",
        "3",
        "at most 2",
    ),
    in_config(
        "setting in the wrong section",
        "store:",
        "port: 80\nstore:",
        "line 1",
        "unknown field 'port'",
        "move it under listen:",
    ),
    in_config(
        "misspelled section",
        "store:",
        "lisen: {}\nstore:",
        "line 1",
        "unknown field 'lisen'",
        "did you mean 'listen'?",
    ),
    in_config(
        "variable that is not set",
        'localhost:9/v1"}',
        'localhost:9/v1", api_key: os.environ/NOT_SET}',
        "small",
        "NOT_SET",
        "export NOT_SET=...",
    ),
]

HTTP = [
    in_create(
        "panels smaller than declared",
        {"policy": "auto", "problem": {"limits": [{"cost": "usd", "at_most": 1.2}]}},
        "at_most('usd', 1.2)",
        "panels of 2 different experts cannot keep",
        "declare with min_draws",
    ),
    in_create(
        "more draws than experts",
        {"policy": "auto", "problem": {"draws": 9}},
        "problem.draws",
        "9",
        "draw fewer",
    ),
    in_create(
        "misspelled field", {"polcy": "omd"}, "'polcy'", "unknown field", "did you mean 'policy'?"
    ),
    in_create(
        "misspelled field of a policy",
        {"policy": {"name": "omd", "setings": {}}},
        "in policy",
        "unknown field 'setings'",
        "did you mean 'settings'?",
    ),
    in_create(
        "misspelled cost",
        {"problem": {"limits": [{"cost": "uds", "at_most": 3}]}},
        "problem.limits[0].cost",
        "unknown cost 'uds'",
        "did you mean 'usd'?",
    ),
    in_create(
        "misspelled feedback", {"feedback": "member"}, "in feedback", "'member'", "'members'"
    ),
    in_create(
        "name with spaces", {"name": "My Router"}, "in name", "expected", "lower-case letters"
    ),
    in_create("name in use", {"name": "triage"}, "'triage'", "exists already", "use another name"),
    in_http(
        "misspelled field in a batch",
        "POST /v1/routers/triage/decisions:batch",
        BATCH,
        "in decisions[0]",
        "unknown field 'contxt'",
        "did you mean 'context'?",
    ),
    in_http(
        "YAML sent as JSON",
        "POST /v1/routers",
        b"draws: 2",
        "body",
        "not valid JSON",
        "application/yaml",
    ),
    in_http(
        "another type",
        "POST /v1/routers/triage/decisions",
        b"{}",
        "content-type",
        "'text/plain'",
        "expected application/json",
        **AS_TEXT,
    ),
    in_http(
        "misspelled router",
        "GET /v1/routers/triag",
        None,
        "'triag'",
        "no router named",
        "check the spelling",
    ),
    in_http(
        "unknown decision",
        f"POST /v1/decisions/{WRONG_ID}/reward",
        {"value": 0.5},
        WRONG_ID,
        "no decision",
        "use the id that `decide` returned",
    ),
    in_http(
        "misspelled path",
        "GET /v1/router",
        None,
        "'/v1/router'",
        "no such path",
        "see /openapi.json",
    ),
    in_http(
        "another method",
        "GET /v1/routers/triage/decisions",
        None,
        "/v1/routers/triage/decisions",
        "GET not allowed",
        "use POST",
    ),
    in_http(
        "reward out of range",
        REWARD,
        {"value": 1.2},
        "decision triage.",
        "1.2",
        "declare a wider range",
    ),
    in_http(
        "text in place of a number",
        REWARD,
        {"value": "good"},
        "in value",
        "got a text",
        "expected a number",
    ),
    in_http(
        "scores that were not declared",
        REWARD,
        {"members": {"ann": 1}},
        "decision triage.",
        "takes no scores",
        "feedback='members'",
    ),
    in_http(
        "misspelled expert",
        "POST /v1/routers/triage/decisions",
        {"available": ["an"]},
        "available",
        "no expert 'an'",
        "did you mean 'ann'?",
    ),
    in_http(
        "version of the past",
        "PATCH /v1/routers/triage",
        {"version": 7, "wait": 5},
        "'triage'",
        "version 1, not 7",
        "read it again",
    ),
    in_http(
        "all experts paused",
        "PATCH /v1/routers/triage",
        {"pause": NAMES},
        "paused",
        "all experts",
        "keep at least one active",
    ),
    in_http(
        "no key",
        "GET /v1/routers",
        None,
        "401",
        "no valid API key",
        "Authorization: Bearer",
        headers={},
    ),
    in_http(
        "key without the scope",
        "GET /v1/routers",
        None,
        "scope decide",
        "needs scope 'read'",
        "bylot keys create LABEL --scope read",
        **WITH_KEY,
    ),
    in_http(
        "misspelled model",
        "POST /v1/chat/completions",
        CHAT,
        "in model",
        "'bylot/nobody' does not exist",
        "GET /v1/models",
    ),
]

SHELL = [
    in_shell(
        "no server",
        f"router list --server {NOBODY}",
        f"GET {NOBODY}/v1/routers",
        "Connection refused",
        "--server or $BYLOT_SERVER",
    ),
    in_shell(
        "no key",
        "router list --server {guarded}",
        "GET http://127.0.0.1:",
        "no valid API key",
        "--key or $BYLOT_KEY",
    ),
    in_shell(
        "wrong key",
        "router list --key bylot_0_0 --server {guarded}",
        "GET http://127.0.0.1:",
        "no valid API key",
        "--key or $BYLOT_KEY",
    ),
    in_shell(
        "key without the scope",
        "router delete x --yes --key {key} --server {guarded}",
        "DELETE http://127.0.0.1:",
        "needs scope 'admin'",
        "--key or $BYLOT_KEY",
    ),
    in_shell(
        "unknown decision",
        f"reward {WRONG_ID} 0.5 --server {{server}}",
        WRONG_ID,
        "no decision",
        "use the id that `decide` returned",
    ),
    in_shell(
        "misspelled router",
        "router show triag --server {server}",
        "'triag'",
        "no router named",
        "check the spelling",
    ),
    in_shell(
        "word in place of a reward",
        "reward triage.1.1.0 good",
        "VALUE",
        "'good'",
        "expected a number",
    ),
    in_shell(
        "misspelled option",
        "decide triage --contxt icu",
        "--contxt",
        "unrecognized",
        "did you mean --context?",
    ),
    in_shell(
        "unknown option",
        "decide triage --urgent",
        "--urgent",
        "unrecognized",
        "`bylot decide --help`",
    ),
    in_shell("misspelled verb", "optimm pool.yaml", "VERB", "'optimm'", "'optimum'"),
    in_shell("misspelled scope", "keys create me --scope admn", "--scope", "'admn'", "'admin'"),
    in_shell(
        "bound without a number",
        "router edit triage --at-most usd",
        "--at-most",
        "'usd'",
        "such as usd=2.5",
    ),
    in_shell(
        "misspelled cost",
        "router edit triage --at-most uds=3 --server {server}",
        "limits[1].cost",
        "unknown cost 'uds'",
        "did you mean 'usd'?",
    ),
    in_shell(
        "misspelled limit",
        "router edit triage --drop uds --server {server}",
        "--drop uds",
        "no such limit",
        "did you mean 'usd'?",
    ),
    in_shell(
        "no problem file",
        "problem check nowhere.yaml",
        "nowhere.yaml",
        "no such file",
        "give the path",
    ),
    in_shell(
        "misspelled policy",
        "simulate {pool} --policy distnct",
        "--policy",
        "'distnct'",
        "did you mean 'distinct'?",
    ),
    in_shell(
        "more draws than experts",
        "router create wrong {many} --server {server}",
        "draws",
        "9",
        "draw fewer",
    ),
    in_shell(
        "no table",
        "optimum {pool} --outcomes nowhere.csv",
        "nowhere.csv",
        "no such file",
        "give the path",
    ),
    in_shell("word in place of a port", "serve --port http", "--port", "'http'", "expected"),
    in_shell(
        "no configuration file",
        "serve --config nowhere.yaml",
        "nowhere.yaml",
        "No such file",
        "--config or $BYLOT_CONFIG",
    ),
    in_shell(
        "another store",
        "serve --check --store mysql://me",
        "store URL",
        "'mysql'",
        "use sqlite:///",
    ),
]

MISTAKES = {f"{one.where}: {one.what}": one for one in (*PYTHON, *FILES, *HTTP, *SHELL)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One server with a router and without keys, and one with a key that may only decide."""
    folder, other = (tmp_path_factory.mktemp(name) for name in ("open", "guarded"))
    store = open_store(f"sqlite:///{other}/bylot.db")
    key, row = issue_key("caller", ("decide",), (), 0)
    store.add_key(row)
    store.close()
    with live_server(folder) as server, live_server(other) as guarded:
        limits = [{"cost": "usd", "at_most": 9.0}]
        pool = {"experts": NAMES, "costs": USD, "draws": 2, "limits": limits}
        body = {"name": "triage", "policy": "random", "problem": pool}
        assert server.post("/v1/routers", json=body).status_code == 201
        found = Bench(folder, server, guarded, key)
        found.write("pool.yaml", POOL)
        found.write("many.yaml", POOL.replace("draws: 2", "draws: 9"))
        yield found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_place_cause_and_remedy(bench: Bench, name: str) -> None:
    mistake = MISTAKES[name]
    answer = mistake.make(bench)
    assert answer, "it was accepted without a word"
    for part in (mistake.place, mistake.cause, mistake.remedy):
        assert part in answer


def test_there_are_enough_mistakes_of_every_kind() -> None:
    counts = Counter(mistake.where for mistake in MISTAKES.values())
    assert set(counts) == {"Python", "file", "HTTP", "shell"}
    assert min(counts.values()) >= 20
    assert all(one.place and one.cause and one.remedy for one in MISTAKES.values())


def test_what_is_right_is_accepted_without_a_word(bench: Bench) -> None:
    assert bench.run("problem", "check", "{pool}") == ""
    assert bench.run("serve", "--check", "--config", str(bench.write("bylot.yaml", CONFIG))) == ""
    quiet = in_python("nothing", "", "", "", lambda: Router(make_pool([at_most("usd", 4.5)])))
    assert quiet.make(bench) == ""
