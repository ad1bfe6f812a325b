"""Scorers that look at the text of an answer alone: exact, regex and json_schema.

An answer that calls tools and has no text is left out: these scorers cannot tell whether it is
good. A refusal, or an empty text, has score 0.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Any

from msgspec import Meta, Struct

from bylot.errors import BylotError, install_command
from bylot.gateway.answers import Answer, ScorerError, Verdict
from bylot.gateway.check_process import CALLER_CHECKS, CHECKS, CheckProcess

MAX_SCHEMA_CHARS = 100_000  # of a schema that comes with a request

Pattern = Annotated[
    str, Meta(min_length=1, max_length=1_000, description="a regular expression of Python")
]
Flag = Annotated[bool, Meta(description="true or false")]


class ExactSettings(Struct, frozen=True, kw_only=True):
    """extract: what to compare: the first group of the last match, or the last match."""

    extract: Pattern | None = None
    ignore_case: Flag = False


class RegexSettings(Struct, frozen=True, kw_only=True):
    """pattern: what a good answer contains."""

    pattern: Pattern
    ignore_case: Flag = False


class JsonSchemaSettings(Struct, frozen=True, kw_only=True):
    """schema: what a good answer meets; None: that of the request's `response_format`."""

    schema: Annotated[dict[str, Any], Meta(description="a JSON schema")] | None = None


class ExactScorer:
    """1 if the answer is the text in `metadata.bylot_expected` of the request, else 0.

    Spaces around both are ignored. Without an expected text, nobody has a score.
    """

    source = "exact"

    def __init__(self, what: str, settings: ExactSettings, checks: CheckProcess = CHECKS) -> None:
        if settings.extract is not None:
            check_pattern(f"{what}.extract", settings.extract)
        self.settings, self.checks = settings, checks

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Compare each text with the expected one."""
        metadata = request.get("metadata")
        expected = metadata.get("bylot_expected") if isinstance(metadata, Mapping) else None
        if expected is None:
            return Verdict(scores={}, source=self.source)
        if not isinstance(expected, str):
            raise ScorerError("metadata.bylot_expected is not a text")
        judged = list_judged(answers)
        texts: Sequence[str | None] = [answer.text for answer in judged]
        if self.settings.extract is not None:
            pattern, ignore_case = self.settings.extract, self.settings.ignore_case
            texts = await self.checks.find(pattern, [one.text for one in judged], ignore_case)
        wanted = self.fold(expected)
        good = [
            bool(answer.text.strip()) and text is not None and self.fold(text) == wanted
            for answer, text in zip(judged, texts, strict=True)
        ]
        return make_verdict(self.source, judged, good)

    def fold(self, text: str) -> str:
        """A text as it is compared."""
        text = text.strip()
        return text.casefold() if self.settings.ignore_case else text


class RegexScorer:
    """1 if a pattern is found in the answer, else 0."""

    source = "regex"

    def __init__(self, what: str, settings: RegexSettings, checks: CheckProcess = CHECKS) -> None:
        check_pattern(f"{what}.pattern", settings.pattern)
        self.settings, self.checks = settings, checks

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Search the pattern in each text."""
        judged, settings = list_judged(answers), self.settings
        texts = [answer.text for answer in judged]
        found = await self.checks.find(settings.pattern, texts, settings.ignore_case)
        good = [
            bool(text.strip()) and one is not None for text, one in zip(texts, found, strict=True)
        ]
        return make_verdict(self.source, judged, good)


class JsonSchemaScorer:
    """1 if the whole answer is JSON that meets a schema, else 0.

    A text around the JSON, such as a code fence, has score 0: a program that reads the answer could
    not parse it. Without a schema, neither here nor in the request, nobody has a score.
    """

    source = "json_schema"

    def __init__(
        self, what: str, settings: JsonSchemaSettings, checks: CheckProcess | None = None
    ) -> None:
        if find_spec("jsonschema") is None:
            raise BylotError(f"{what} needs jsonschema", remedy=install_command("serve"))
        if settings.schema is not None:
            check_schema(f"{what}.schema", settings.schema)
        self.schema = settings.schema
        self.checks = checks or (CALLER_CHECKS if self.schema is None else CHECKS)

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Validate each text."""
        schema = self.schema if self.schema is not None else find_request_schema(request)
        if schema is None:
            return Verdict(scores={}, source=self.source)
        judged = list_judged(answers)
        good = await self.checks.validate(schema, [answer.text for answer in judged])
        return make_verdict(self.source, judged, good)


def list_judged(answers: Sequence[Answer]) -> list[Answer]:
    """The answers that have a text or should have one."""
    return [answer for answer in answers if answer.text.strip() or not has_tool_calls(answer)]


def has_tool_calls(answer: Answer) -> bool:
    """Whether an answer calls tools, in the current form or in the old one."""
    message = answer.choice["message"]
    return bool(message.get("tool_calls") or message.get("function_call"))


def make_verdict(source: str, judged: Sequence[Answer], good: Sequence[bool]) -> Verdict:
    """Score 1 for good answers and 0 for others."""
    scores = {answer.member: float(one) for answer, one in zip(judged, good, strict=True)}
    return Verdict(scores=scores, source=source)


def check_pattern(what: str, pattern: str) -> None:
    """Reject what is no regular expression."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise BylotError(
            what,
            got=pattern,
            expected=f"a regular expression of Python ({error})",
            remedy="correct it; in YAML, put it in single quotes",
        ) from None


def check_schema(what: str, schema: dict[str, Any]) -> None:
    """Reject what is no JSON schema."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        place = "".join(f".{part}" for part in error.absolute_path)
        raise BylotError(f"{what}{place}: {error.message}", remedy="correct the schema") from None


def find_request_schema(request: Mapping[str, Any]) -> Any:
    """The schema in the request's `response_format`, if it has one."""
    found: Any = request
    for name in ("response_format", "json_schema", "schema"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    if len(json.dumps(found)) > MAX_SCHEMA_CHARS:
        raise ScorerError(f"the schema of the request is longer than {MAX_SCHEMA_CHARS} characters")
    return found
