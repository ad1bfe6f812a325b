"""Pages as HTML and their twins as JSON."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from bylot.server.dashboard import formatting
from bylot.server.dashboard.formatting import FORMATS

CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file to send."""

    content: bytes
    type: str


@cache
def load_assets() -> dict[str, Asset]:
    """All of them, by name."""
    folder = files("bylot.server.dashboard") / "static"
    return {
        file.name: Asset(file.read_bytes(), CONTENT_TYPES[file.name.rpartition(".")[2]])
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        if file.name.rpartition(".")[2] in CONTENT_TYPES
    }


@cache
def asset_folder() -> str:
    """The path that all are under; scripts find each other beside themselves."""
    digest = hashlib.sha256()
    for name, asset in load_assets().items():
        digest.update(name.encode() + b"\0" + asset.content + b"\0")
    return f"/assets/{digest.hexdigest()[:16]}"


def asset_url(name: str) -> str:
    """Where an asset is."""
    return f"{asset_folder()}/{name}"


class BoundTarget(NamedTuple):
    """What of an element shows which value, and how."""

    name: str  # text, or an attribute
    path: tuple[str, ...]
    show: Callable[[Any], Any]


BOOLEAN_FORMATS: dict[str, Callable[[Any], bool]] = {
    "given": bool,
    "missing": lambda value: not value,
}
"""Formats of attributes that are there or not."""


@cache
def parse_binding(binding: str) -> tuple[BoundTarget, ...]:
    """What a binding says; templates have a hundred or so of them."""
    found = []
    for one in binding.split(" "):
        name, source = one.split(":", 1)
        path, _, word = source.partition("|")
        steps = () if path == "." else tuple(path.split("."))
        found.append(
            BoundTarget(name, steps, BOOLEAN_FORMATS.get(word) or FORMATS[word or "plain"])
        )
    return tuple(found)


def lookup_path(scope: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none.

    >>> (
    ...     lookup_path({"now": {"mean": 2.5}}, "now.mean"),
    ...     lookup_path(None, "now.mean"),
    ...     lookup_path(7, "."),
    ... )
    (2.5, None, 7)
    """
    return walk_path(scope, () if path == "." else path.split("."))


def walk_path(scope: Any, steps: Sequence[str]) -> Any:
    """The value some steps on, through structs and mappings."""
    for step in steps:
        if scope is None:
            return None
        scope = scope.get(step) if isinstance(scope, Mapping) else getattr(scope, step)
    return scope


def bound_element(tag: str, scope: Any, binding: str, /, **fixed: str) -> Markup:
    """An element whose text and attributes are bound.

    >>> print(bound_element("td", {"mean": 2.5}, "text:mean|number", title="so far"))
    <td title="so far" data-bind="text:mean|number">2.5</td>
    """
    texts = [
        one.show(walk_path(scope, one.path)) for one in parse_binding(binding) if one.name == "text"
    ]
    inside = escape(texts[0]) if texts else ""
    return Markup(f"<{tag} {bound_attributes(scope, binding, **fixed)}>{inside}</{tag}>")


def bound_attributes(scope: Any, binding: str, /, **fixed: str) -> Markup:
    """The attributes alone, for an element with children."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in fixed.items()}
    given["data-bind"] = binding
    for one in parse_binding(binding):
        value = False if one.name == "text" else one.show(walk_path(scope, one.path))
        if value is not False:
            given[one.name] = "" if value is True else value
    return Markup(" ".join([f'{name}="{escape(value)}"' for name, value in given.items()]))


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
"""Nothing from anywhere else, no script or style in the page itself, in nobody's frame."""


@cache
def template_environment() -> Environment:
    """Where templates are and what they can call; everything that they write is escaped."""
    made = Environment(
        loader=PackageLoader("bylot.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "asset": asset_url,
        "attributes": bound_attributes,
        "element": bound_element,
        "embedded": embed_json,
        "lookup": lookup_path,
    }
    made.filters |= formatting.FORMATS
    return made


def render_page(template: str, status: int = 200, /, **content: Any) -> Response:
    """A page."""
    text = template_environment().get_template(template).render(**content)
    return HTMLResponse(text, status, PAGE_HEADERS)


def render_json(data: Any, status: int = 200) -> Response:
    """The data of a page; what is not a number is null."""
    return Response(msgspec.json.encode(data), status, PAGE_HEADERS, "application/json")


def embed_json(data: Any) -> Markup:
    """Data for a script element: JSON in which nothing can end the element."""
    text = msgspec.json.encode(data).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
