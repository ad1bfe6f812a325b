"""The program of the child process that searches patterns and validates JSON schemas.

It reads one job per line from standard input and writes one result per line, both JSON. It imports
nothing of bylot, so that it starts fast. `check_process` starts it, and ends it if a job is slow.
"""

import json
import re
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

MAX_MEMORY_BYTES = 1 << 30


def run_job(job: dict[str, Any]) -> list[Any]:
    """A result for each text: what a pattern finds, or whether a schema is met.

    >>> job = {"pattern": "is ([A-J])", "ignore_case": False}
    >>> run_job({**job, "texts": ["is A, no, is C", "?"]})
    ['C', None]
    """
    if "pattern" in job:
        pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
        return [find_last(pattern, text) for text in job["texts"]]
    validator = make_validator(job["schema"])
    return [is_valid_json(validator, text) for text in job["texts"]]


def find_last(pattern: re.Pattern[str], text: str) -> str | None:
    """The last match, of which the first group if there is one; None without a match."""
    found = deque(pattern.finditer(text), maxlen=1)
    return (found[0][1 if pattern.groups else 0] or "") if found else None


@lru_cache(maxsize=32)
def make_validator(schema_text: str) -> Any:
    """The validator of a schema; references to other documents are not fetched."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY

    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    return kind(schema, registry=REGISTRY)


def is_valid_json(validator: Any, text: str) -> bool:
    """Whether a text is JSON that meets a schema; NaN and Infinity are not JSON."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return bool(validator.is_valid(value))


def refuse_constant(name: str) -> NoReturn:
    """Reject a number that JSON does not have."""
    raise ValueError(name)


def limit_memory() -> None:
    """Let an allocation fail rather than fill the memory of the machine."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def serve_jobs(lines: Iterable[str]) -> None:
    """Run jobs until the input ends."""
    with suppress(ImportError):
        make_validator("{}")  # the import takes longer than any job
    print("ready", flush=True)
    for line in lines:
        try:
            result: dict[str, Any] = {"results": run_job(json.loads(line))}
        except Exception as error:
            result = {"error": type(error).__name__}  # its text may quote a prompt
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    limit_memory()
    serve_jobs(sys.stdin)
