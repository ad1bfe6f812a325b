"""Renders pages: templates, static assets, and values bound to elements so that scripts can update
them.

`data-bind="text:mean|number width:gauge.mean|width"` means: the text of the element is `mean` in
the format `number`; its attribute `width` is `gauge.mean`. `data-each="limits"` means: after its
<template> the element has one child per item of `limits`. Paths start at the data of the page or,
within data-each, at the item. The templates call these functions; `static/bind.js` does the same in
the browser.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from bylot._text import MISSING_TEXT, format_number, format_percent, round_half_up

FORMATS: dict[str, Callable[[Any], str]] = {
    "number": format_number,
    # A whole number with separators: 1,234,567.
    "count": lambda n: MISSING_TEXT if n is None else f"{n:,}",
    "percent": format_percent,
    # Two decimals, so that a column is aligned.
    "hundredths": lambda x: (
        MISSING_TEXT if x is None or not math.isfinite(x) else str(round_half_up(x, 2))
    ),
    # The probability of a whole panel, which may be tiny; 0 means unknown.
    "propensity": lambda part: format_number(part or None),
    # A time in UTC, to the second.
    "time": lambda at: at[:19].replace("T", " ") if at else MISSING_TEXT,
    # Colour level of a cell, 0 to 9: ceil(9 sqrt(p)), so that small probabilities differ.
    "level": lambda part: str(min(9, math.ceil(9 * math.sqrt(max(0.0, part or 0.0))))),
    # A length in a drawing, as an SVG attribute.
    "width": lambda part: (
        "0%" if part is None else f"{round_half_up(100 * min(1.0, max(0.0, part)), 2)}%"
    ),
    # The path of a router's page.
    "router": lambda name: "/routers/" + quote(name or "", safe="!'()*"),
    # Text as it is; the templates escape it.
    "plain": lambda text: MISSING_TEXT if text is None or text == "" else str(text),
}
"""By the names that templates use."""


CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""No content from other origins, no inline script or style, no embedding in frames."""


class Asset(NamedTuple):
    """A static file."""

    content: bytes
    type: str


@cache
def load_assets() -> dict[str, Asset]:
    """All static files, by name."""
    folder = files("bylot.server.dashboard") / "static"
    return {
        file.name: Asset(file.read_bytes(), CONTENT_TYPES[file.name.rpartition(".")[2]])
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        if file.name.rpartition(".")[2] in CONTENT_TYPES
    }


@cache
def asset_folder() -> str:
    """The path of all assets: it contains a digest of them, so browsers may cache them forever."""
    digest = hashlib.sha256()
    for name, asset in load_assets().items():
        digest.update(name.encode() + b"\0" + asset.content + b"\0")
    return f"/assets/{digest.hexdigest()[:16]}"


def asset_url(name: str) -> str:
    return f"{asset_folder()}/{name}"


class BoundTarget(NamedTuple):
    """The text or an attribute of an element, the path of its value, and the format."""

    name: str  # text, or an attribute
    path: str
    format: Callable[[Any], Any]


BOOLEAN_FORMATS: dict[str, Callable[[Any], bool]] = {"given": bool, "missing": lambda x: not x}
"""Formats of attributes that are present or absent."""


@cache
def parse_binding(binding: str) -> tuple[BoundTarget, ...]:
    """The targets of a `data-bind` attribute."""
    found = []
    for one in binding.split(" "):
        name, source = one.split(":", 1)
        path, _, word = source.partition("|")
        found.append(BoundTarget(name, path, BOOLEAN_FORMATS.get(word) or FORMATS[word or "plain"]))
    return tuple(found)


def lookup_path(scope: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none.

    >>> lookup_path({"now": {"mean": 2.5}}, "now.mean"), lookup_path(None, "now.mean")
    (2.5, None)
    """
    for step in () if path == "." else path.split("."):
        if scope is None:
            return None
        scope = scope.get(step) if isinstance(scope, Mapping) else getattr(scope, step)
    return scope


def bound_element(tag: str, scope: Any, binding: str, /, **fixed: str) -> Markup:
    """An element whose text and attributes are bound.

    >>> print(bound_element("td", {"mean": 2.5}, "text:mean|number", title="so far"))
    <td title="so far" data-bind="text:mean|number">2.5</td>
    """
    targets = [one for one in parse_binding(binding) if one.name == "text"]
    text = escape(targets[0].format(lookup_path(scope, targets[0].path))) if targets else ""
    return Markup(f"<{tag} {bound_attributes(scope, binding, **fixed)}>{text}</{tag}>")


def bound_attributes(scope: Any, binding: str, /, **fixed: str) -> Markup:
    """Only the attributes, for an element with children."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in fixed.items()}
    given["data-bind"] = binding
    for one in parse_binding(binding):
        value = False if one.name == "text" else one.format(lookup_path(scope, one.path))
        if value is not False:
            given[one.name] = "" if value is True else value
    return Markup(" ".join([f'{name}="{escape(value)}"' for name, value in given.items()]))


@cache
def template_environment() -> Environment:
    """The templates and the functions they call; all output is escaped."""
    environment = Environment(
        loader=PackageLoader("bylot.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "asset": asset_url,
        "attributes": bound_attributes,
        "element": bound_element,
        "embed_json": embed_json,
        "lookup": lookup_path,
        "router_path": FORMATS["router"],
    }
    return environment


def render_page(template: str, status: int = 200, /, **content: Any) -> Response:
    text = template_environment().get_template(template).render(**content)
    return HTMLResponse(text, status, PAGE_HEADERS)


def render_json(data: Any, status: int = 200) -> Response:
    """The data of a page as JSON; NaN is null."""
    return Response(msgspec.json.encode(data), status, PAGE_HEADERS, "application/json")


def embed_json(data: Any) -> Markup:
    """JSON for a script element, in which nothing can end the element."""
    text = msgspec.json.encode(data).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
