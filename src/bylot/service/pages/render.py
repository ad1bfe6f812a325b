"""Pages as HTML and their twins as JSON."""

from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from bylot.service.pages import assets, binding, words

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Nothing from anywhere else, no script or style in the page itself, in nobody's frame."""


@cache
def environment() -> Environment:
    """Where templates are and what they can call; everything that they write is escaped."""
    made = Environment(
        loader=PackageLoader("bylot.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "asset": assets.address,
        "attributes": binding.attributes,
        "element": binding.element,
        "embedded": embedded,
        "lookup": binding.lookup,
    }
    made.filters |= words.FORMATS
    return made


def page(template: str, status: int = 200, /, **content: Any) -> Response:
    """A page."""
    text = environment().get_template(template).render(**content)
    return HTMLResponse(text, status, HEADERS)


def twin(data: Any, status: int = 200) -> Response:
    """The data of a page; what is not a number is null."""
    return Response(msgspec.json.encode(data), status, HEADERS, "application/json")


def embedded(data: Any) -> Markup:
    """Data for a script element: JSON in which nothing can end the element."""
    text = msgspec.json.encode(data).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
