"""The HTTP reference, generated from the route table and the types of `bylot.api`."""

from collections.abc import Iterator
from typing import Any

from bylot.api import ERROR_CODES
from bylot.problem_files.schema import SCHEMA
from bylot.server.endpoint import ApiRoute
from bylot.server.routes import ROUTES, STATUS_DESCRIPTIONS, build_openapi, error_statuses
from bylot.server.settings import SCOPES

HEAD = f"""# HTTP

This page is generated from the route table; a server provides the same as an OpenAPI 3.1 document
at `/openapi.json`. Bodies are JSON. Unknown and duplicate fields are rejected.

If the server has API keys, each request needs one: `Authorization: Bearer bylot_…`. A key has some
of the scopes {", ".join(f"`{scope}`" for scope in SCOPES)}, and is valid for some routers or all. A
server without keys accepts requests from its own machine only.

A response is sent after its effect is on disk. The same decision request with the same key (`key`,
or the header `Idempotency-Key`) returns the same decision, byte for byte; a repeated reward is a
`duplicate`. So a request that failed on the way can simply be sent again.

"""
HEADINGS = {
    "routers": "Routers",
    "decisions": "Decisions and rewards",
    "gateway": "Gateway",
    "feedback": "Feedback in the shape of other routers",
    "personalizer": "Personalizer API",
    "server": "Server",
}


def page() -> str:
    """Routes by heading, errors, types."""
    made = build_openapi(ROUTES)
    parts = [HEAD, *under_headings(made), errors_section(), "## Types", *types(made)]
    return "\n\n".join(parts)


def under_headings(made: dict[str, Any]) -> Iterator[str]:
    """All routes."""
    for name, heading in HEADINGS.items():
        yield f"## {heading}"
        for route in ROUTES:
            operation = made["paths"][route.path][route.method.lower()]
            if operation["tags"] == [name]:
                yield section(route, operation)


def section(route: ApiRoute, told: dict[str, Any]) -> str:
    """One route."""
    status, kind = route.success
    gives = "nothing" if kind is None else link(body(told["responses"][str(status)]))
    needs = "no key" if route.scope is None else f"scope `{route.scope}`"
    takes = f"; body: {link(body(told['requestBody']))}" if "requestBody" in told else ""
    numbers = ", ".join(str(number) for number in error_statuses(route))
    lines = [
        f"### `{route.method} {route.path}`",
        f"{told['summary']}.",
        f"Needs {needs}{takes}; returns {status} with {gives}. Errors: {numbers}.",
    ]
    given = [one for one in told["parameters"] if one["in"] != "path"]
    lines += [f"- `{one['name']}` ({one['in']}): {shape(one['schema'])}" for one in given]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def body(told: dict[str, Any]) -> dict[str, Any]:
    """The schema of a body."""
    return dict(next(iter(told["content"].values()))["schema"])


def errors_section() -> str:
    """Statuses and codes of all errors."""
    codes: dict[int, list[str]] = {}
    for _, status, code in ERROR_CODES:
        if code not in codes.setdefault(status, []):
            codes[status].append(code)
    rows = [
        f"| {status} | {said} | {', '.join(f'`{code}`' for code in codes.get(status, []))} |"
        for status, said in STATUS_DESCRIPTIONS.items()
    ]
    return "\n".join(
        [
            "## Errors",
            "",
            'Every error is `{"error": {"code", "message", "field"?}}`, and one of the gateway has',
            'OpenAI\'s envelope, `{"error": {"message", "type", "param", "code"}}`. If a retry may',
            "help, `Retry-After` contains the number of seconds to wait.",
            "",
            "| status | meaning | codes |",
            "|---|---|---|",
            *rows,
        ]
    )


def types(made: dict[str, Any]) -> Iterator[str]:
    """All types of bodies."""
    for name, schema in sorted({**made["components"]["schemas"], **SCHEMA["$defs"]}.items()):
        if "properties" not in schema:
            continue
        required = set(schema.get("required", ()))
        lines = [f"### {name}", schema.get("description", ""), "| field | | |\n|---|---|---|"]
        rows = [
            f"| `{field}` | {shape(inner)} | {'' if field in required else default_of(inner)} |"
            for field, inner in schema["properties"].items()
        ]
        yield "\n\n".join(lines) + "\n" + "\n".join(rows)


def default_of(schema: dict[str, Any]) -> str:
    """The default of a field."""
    if "default" not in schema:
        return "optional"
    value = schema["default"]
    return "optional" if value in (None, [], {}) else f"default `{value}`"


def shape(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return link(schema)
    if "anyOf" in schema:
        return " or ".join(shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list of {shape(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {shape(schema['additionalProperties'])}"
    if kind == "string" and "maxLength" in schema:
        return f"string, at most {schema['maxLength']} characters"
    return str(kind)


def link(schema: dict[str, Any]) -> str:
    """The type of a body, as a link to its section."""
    if "$ref" not in schema:
        return shape(schema)
    name = schema["$ref"].rpartition("/")[2]
    part = SCHEMA["$defs"].get(name, {"properties": ...})  # of a problem, or another type
    if "properties" not in part:
        return shape(part)
    return f"[{name}](#{name.lower()})"
