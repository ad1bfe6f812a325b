"""The page of the HTTP interface, from the table of routes and the types that serve it."""

from collections.abc import Iterator
from typing import Any

from bylot.server.auth import SCOPES
from bylot.server.endpoint import ApiRoute
from bylot.server.http_errors import ERROR_TABLE
from bylot.server.openapi import STATUS_DESCRIPTIONS, build_openapi, error_statuses, operation_tag
from bylot.server.routes import ROUTES

HEAD = f"""# HTTP

Made from the table of routes when this site was built; a server tells the same as an OpenAPI 3.1
document at `/openapi.json`. Bodies are JSON; a field that is not known, or is there twice, is
refused.

Where there are keys, each request carries one as `Authorization: Bearer bylot_…`; a key is for some
of the scopes {", ".join(f"`{scope}`" for scope in SCOPES)}, and for some routers or all. A server
without keys listens on its own machine only.

An answer comes after what it says is on disk. A decision that is asked for again under the same key
(`key`, or the header `Idempotency-Key`) is the same decision, byte for byte; a reward that is told
again is a `duplicate`. So whatever failed on the way can simply be sent again.

"""
HEADINGS = {
    "routers": "Routers",
    "decisions": "Decisions and rewards",
    "personalizer": "Calls of Personalizer",
    "server": "The server",
}


def page() -> str:
    """Routes by heading, refusals, types."""
    made = build_openapi(ROUTES)
    parts = [HEAD, *under_headings(made), refused(), "## Types", *types(made)]
    return "\n\n".join(parts)


def under_headings(made: dict[str, Any]) -> Iterator[str]:
    """All routes."""
    for name, heading in HEADINGS.items():
        yield f"## {heading}"
        for route in ROUTES:
            if operation_tag(route) == name:
                yield section(route, made["paths"][route.path][route.method.lower()])


def section(route: ApiRoute, told: dict[str, Any]) -> str:
    """One route."""
    status, kind = route.gives
    gives = "nothing" if kind is None else link(body(told["responses"][str(status)]))
    needs = "no key" if route.scope is None else f"scope `{route.scope}`"
    takes = f"; takes {link(body(told['requestBody']))}" if "requestBody" in told else ""
    numbers = ", ".join(str(number) for number in error_statuses(route))
    lines = [
        f"### `{route.method} {route.path}`",
        f"{told['summary']}.",
        f"Needs {needs}{takes}; gives {status} with {gives}. Refusals: {numbers}.",
    ]
    given = [one for one in told["parameters"] if one["in"] != "path"]
    lines += [f"- `{one['name']}` ({one['in']}): {shape(one['schema'])}" for one in given]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def body(told: dict[str, Any]) -> dict[str, Any]:
    """The schema of a body."""
    (content,) = told["content"].values()
    return dict(content["schema"])


def refused() -> str:
    """What may go wrong."""
    codes: dict[int, list[str]] = {}
    for _, status, code, _ in ERROR_TABLE:
        if code not in codes.setdefault(status, []):
            codes[status].append(code)
    rows = [
        f"| {status} | {said} | {', '.join(f'`{code}`' for code in codes.get(status, []))} |"
        for status, said in STATUS_DESCRIPTIONS.items()
    ]
    return "\n".join(
        [
            "## Refusals",
            "",
            'Every one has the shape `{"error": {"code", "message", "field"?}}`; where it helps to',
            "try again, `Retry-After` says after how many seconds.",
            "",
            "| status | | codes of its own |",
            "|---|---|---|",
            *rows,
        ]
    )


def types(made: dict[str, Any]) -> Iterator[str]:
    """All types of bodies."""
    for name, schema in sorted(made["components"]["schemas"].items()):
        if "properties" not in schema:
            continue
        required = set(schema.get("required", ()))
        lines = [f"### {name}", schema.get("description", ""), "| field | | |\n|---|---|---|"]
        rows = [
            f"| `{field}` | {shape(inner)} | {'' if field in required else usual(inner)} |"
            for field, inner in schema["properties"].items()
        ]
        yield "\n\n".join(lines) + "\n" + "\n".join(rows)


def usual(schema: dict[str, Any]) -> str:
    """What a field is if it is left out."""
    if "default" not in schema:
        return "may be left out"
    value = schema["default"]
    return "may be left out" if value in (None, [], {}) else f"usually `{value}`"


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
    """The type of a body, as a link to where it is told."""
    if "$ref" not in schema:
        return shape(schema)
    name = schema["$ref"].rpartition("/")[2]
    return f"[{name}](#{name.lower()})"
