"""Makes the scorer of a configuration entry; scorers that call a function or a service.

Settings are checked when a scorer is made; what a function or a service returns is checked here.
"""

import asyncio
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from importlib import import_module
from importlib.metadata import entry_points
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bylot.errors import BylotError
from bylot.gateway.answers import Answer, Scorer, ScorerError, Usage, Verdict
from bylot.gateway.config import ScorerEntry, resolve_variables, split_url
from bylot.gateway.entry_settings import name_source, read_entry_settings
from bylot.gateway.judge import AskModel, Judge, JudgeSettings
from bylot.gateway.text_scorers import (
    ExactScorer,
    ExactSettings,
    JsonSchemaScorer,
    JsonSchemaSettings,
    RegexScorer,
    RegexSettings,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

ENTRY_POINT_GROUP = "bylot.scorers"
MAX_SCORER_RESPONSE_BYTES = 1_000_000
SCORER_THREAD_PREFIX = "bylot-scorer"
MAX_SCORER_THREADS = 8  # of a function that is not async

ScorerTimeout = Annotated[float, Meta(gt=0, le=600, description="seconds, at most 600")]
ScoreFunction = Callable[[Mapping[str, Any], Sequence[Answer]], Any]


class PythonSettings(Struct, frozen=True, kw_only=True):
    """function: `package.module:function`, or the name of an entry point in `bylot.scorers`."""

    function: Annotated[
        str, Meta(min_length=1, max_length=200, description="'package.module:function'")
    ]
    timeout_s: ScorerTimeout = 30.0


class HttpSettings(Struct, frozen=True, kw_only=True):
    """headers: of every request; a value `os.environ/NAME` is read from the environment."""

    url: Annotated[str, Meta(description="http://HOST/PATH or https://..., without a user")]
    timeout_s: ScorerTimeout = 10.0
    headers: Annotated[dict[str, str], Meta(description="texts by name")] = {}


class PythonScorer:
    """Calls a function of yours with the request and the answers.

    It returns scores by member, a list in the order of the answers (None: unknown), or a Verdict.
    One that is not `async` runs in a thread of this scorer, which goes on after the timeout, as
    threads cannot be ended: calls that hang take up these threads, but none that others need.
    """

    def __init__(self, what: str, settings: PythonSettings) -> None:
        self.function = load_function(f"{what}.function", settings.function)
        self.source = name_source("python", settings.function)
        self.timeout_s = settings.timeout_s
        self.threads = ThreadPoolExecutor(MAX_SCORER_THREADS, SCORER_THREAD_PREFIX)

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Call the function."""
        try:
            async with asyncio.timeout(self.timeout_s):
                found = await self.call(request, list(answers))
        except TimeoutError:
            raise ScorerError(f"{self.source} took longer than {self.timeout_s:g} s") from None
        except Exception as error:
            raise ScorerError(
                f"{self.source}: {type(error).__name__}", detail=f": {error}"
            ) from error
        if isinstance(found, Verdict):
            check_verdict_cost(self.source, found)
            scores = check_scores(self.source, found.scores, answers)
            winner = check_winner(self.source, found.winner, answers)
            return msgspec.structs.replace(found, source=self.source, scores=scores, winner=winner)
        return Verdict(scores=check_scores(self.source, found, answers), source=self.source)

    async def call(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
        """The result of the function."""
        functions = self.function, type(self.function).__call__  # it may be an object
        if any(map(inspect.iscoroutinefunction, functions)):
            return await self.function(request, answers)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self.threads, self.call_in_thread, request, answers)
        return await found if inspect.isawaitable(found) else found

    def call_in_thread(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
        """The result of a function that is not async; `sys.exit` in it must not end the server."""
        try:
            return self.function(request, answers)
        except SystemExit as error:
            raise RuntimeError("it called sys.exit") from error


def check_verdict_cost(source: str, verdict: Verdict) -> None:
    """Refuse costs that are no amount of money."""
    cost = verdict.cost
    if not isinstance(cost, Real) or not 0.0 <= float(cost) < math.inf:
        raise ScorerError(f"{source}: the cost of a verdict is not a number of 0 or more")
    if not isinstance(verdict.usage, Usage):
        raise ScorerError(f"{source}: the usage of a verdict is no Usage")


class HttpScorer:
    """Sends the request and the answers to a service, which returns their scores.

    It is sent `{"request": {...}, "answers": [{"member", "text", "message"}, ...]}` and responds
    with `{"scores": {"NAME": 0.5, ...}}`, or with a list in the order of the answers; it may name a
    `winner`.
    """

    source = "http"

    def __init__(self, what: str, settings: HttpSettings, session: "ClientSession | None") -> None:
        check_url(f"{what}.url", settings.url)
        self.url, self.timeout_s, self.session = settings.url, settings.timeout_s, session
        self.headers = read_headers(f"{what}.headers", settings.headers)

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Ask the service."""
        import aiohttp  # of the extra that also made the session

        shown = [
            {"member": answer.member, "text": answer.text, "message": answer.choice["message"]}
            for answer in answers
        ]
        question = json.dumps({"request": request, "answers": shown}).encode()  # also surrogates
        try:
            async with asyncio.timeout(self.timeout_s):
                content = await self.post(question)
        except TimeoutError:
            raise ScorerError(f"http: no response within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScorerError(f"http: {type(error).__name__}") from error
        try:
            found = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ScorerError("http: the response is not a JSON object") from None
        scores = check_scores(self.source, found.get("scores"), answers)
        winner = check_winner(self.source, found.get("winner"), answers)
        return Verdict(scores=scores, winner=winner, source=self.source)

    async def post(self, content: bytes) -> bytes:
        """The body of the response, of a bounded size; redirects are not followed."""
        if self.session is None:
            raise ScorerError("http: the scorer has no session")
        fixed = {"content-type": "application/json", "accept-encoding": "identity"}
        headers = {**fixed, **self.headers}
        async with self.session.post(
            self.url, data=content, headers=headers, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise ScorerError(f"http: the service responded with status {response.status}")
            parts, size = [], 0
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > MAX_SCORER_RESPONSE_BYTES:
                    raise ScorerError(f"http: more than {MAX_SCORER_RESPONSE_BYTES} bytes")
            return b"".join(parts)


LOCAL_SCORERS: Mapping[str, tuple[Callable[[str, Any], Scorer], type[Struct]]] = {
    "exact": (ExactScorer, ExactSettings),
    "regex": (RegexScorer, RegexSettings),
    "json_schema": (JsonSchemaScorer, JsonSchemaSettings),
    "python": (PythonScorer, PythonSettings),
}
"""By kind: scorers that ask no other service, and their settings."""


def make_scorer(
    entry: ScorerEntry,
    ask: AskModel,
    *,
    session: "ClientSession | None" = None,
    what: str = "scorer",
) -> Scorer:
    """The scorer of an entry, whose settings are checked.

    ask:     calls a model by name, for a judge
    session: for a scorer of kind http; without one, it can be made but not used
    what:    the place of the entry, for errors
    """
    kind = entry.kind
    place, given = f"{what}.{kind}", getattr(entry, kind)
    if kind == "http":
        return HttpScorer(place, read_entry_settings(place, given, HttpSettings), session)
    if kind == "judge":
        return Judge(read_entry_settings(place, given, JudgeSettings), ask)
    make, settings = LOCAL_SCORERS[kind]
    return make(place, read_entry_settings(place, given, settings))


def check_scores(source: str, found: Any, answers: Sequence[Answer]) -> dict[str, float]:
    """Scores by member, from a mapping or a list in the order of the answers, in [0, 1]."""
    members = [answer.member for answer in answers]
    if isinstance(found, list | tuple) and len(found) == len(members):
        found = dict(zip(members, found, strict=True))
    if not isinstance(found, Mapping):
        wanted = f"scores by member or a list of {len(members)}"
        got = describe_value(found)
        raise ScorerError(f"{source}: expected {wanted}", detail=f", got {got}")
    scores = {}
    for member, score in found.items():
        if member not in members:
            reason = f"{source}: a score of somebody who did not answer"
            raise ScorerError(reason, detail=f": {describe_value(member)}")
        if score is None:
            continue
        if not is_score(score):
            wanted = "expected a number in [0, 1]"
            raise ScorerError(
                f"{source}: score of {member}: {wanted}", detail=f", got {describe_value(score)}"
            )
        scores[str(member)] = float(score)
    return scores


def is_score(value: Any) -> bool:
    """Whether a value is a number in [0, 1].

    >>> is_score(True), is_score(1.5), is_score(float("nan")), is_score("1")
    (True, False, False, False)
    """
    return isinstance(value, Real) and bool(0 <= value <= 1)  # type: ignore[operator]


def check_winner(source: str, winner: Any, answers: Sequence[Answer]) -> str | None:
    """The name of a member that answered, or None."""
    if winner is not None and winner not in [answer.member for answer in answers]:
        raise ScorerError(
            f"{source}: the winner did not answer", detail=f": {describe_value(winner)}"
        )
    return None if winner is None else str(winner)


def describe_value(value: Any) -> str:
    """A value in an error, shortened.

    >>> describe_value([1, 2, 3]), describe_value(1.5)
    ('list of 3', '1.5')
    """
    if isinstance(value, list | tuple | dict):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)[:100]


def load_function(what: str, name: str) -> ScoreFunction:
    """The function of a name: `package.module:function`, or that of an entry point."""
    module, colon, path = name.partition(":")
    try:
        if colon:
            function = reduce(getattr, path.split("."), import_module(module))
        else:
            found = entry_points(group=ENTRY_POINT_GROUP, name=name)
            if not found:
                raise BylotError(
                    what,
                    got=name,
                    expected=f"package.module:function, or an entry point of {ENTRY_POINT_GROUP}",
                )
            function = next(iter(found)).load()
    except BylotError:
        raise
    except Exception as error:  # a module may raise anything when it is imported
        raise BylotError(
            f"{what}: {name!r} cannot be loaded: {error}",
            remedy="install the package where the server runs, or check the spelling",
        ) from error
    if not callable(function):
        raise BylotError(what, got=name, expected="the name of a function")
    return function


def check_url(what: str, url: str) -> None:
    """Reject a URL that is not one of HTTP, or has a user: the URL may appear in logs."""
    parts = split_url(url)
    if parts is None or parts.username is not None:
        raise BylotError(
            what,
            expected="http://HOST:PORT/PATH or https://..., without a user",
            remedy="put a secret into headers",
        )


def read_headers(what: str, given: Mapping[str, str]) -> dict[str, str]:
    """Headers with secrets from the environment; errors name them and do not show them."""
    headers = {}
    for name, value in given.items():
        headers[name] = str(resolve_variables(f"{what}.{name}", value, os.environ))
        if not name.isascii() or not name.isprintable() or not headers[name].isprintable():
            raise BylotError(f"{what}.{name}", expected="printable characters")
    return headers
