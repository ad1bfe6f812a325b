"""How an element of a page says which value it shows, so that the browser can renew it.

`data-bind="text:mean|number width:gauge.mean|width"` says: my text is `mean`, written by the format
`number`; my attribute `width` is `gauge.mean`. `data-each="limits"` says: after my <template> I
have a child for every one of `limits`, made as in it. Paths start at the page's data, or within an
each at the item. The templates call these functions; `static/bind.js` does the same to a page that
is there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from bylot.service.pages.words import FORMATS


class Target(NamedTuple):
    """What of an element shows which value, and how."""

    name: str  # text, or an attribute
    path: tuple[str, ...]
    show: Callable[[Any], Any]


TRUTHS: dict[str, Callable[[Any], bool]] = {"given": bool, "missing": lambda value: not value}
"""Formats of attributes that are there or not."""


@cache
def targets(binding: str) -> tuple[Target, ...]:
    """What a binding says; templates have a hundred or so of them."""
    found = []
    for one in binding.split(" "):
        name, source = one.split(":", 1)
        path, _, word = source.partition("|")
        steps = () if path == "." else tuple(path.split("."))
        found.append(Target(name, steps, TRUTHS.get(word) or FORMATS[word or "plain"]))
    return tuple(found)


def lookup(scope: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none.

    >>> lookup({"now": {"mean": 2.5}}, "now.mean"), lookup(None, "now.mean"), lookup(7, ".")
    (2.5, None, 7)
    """
    return walk(scope, () if path == "." else path.split("."))


def walk(scope: Any, steps: Sequence[str]) -> Any:
    """The value some steps on, through structs and mappings."""
    for step in steps:
        if scope is None:
            return None
        scope = scope.get(step) if isinstance(scope, Mapping) else getattr(scope, step)
    return scope


def element(tag: str, scope: Any, binding: str, /, **fixed: str) -> Markup:
    """An element whose text and attributes are bound.

    >>> print(element("td", {"mean": 2.5}, "text:mean|number", title="so far"))
    <td title="so far" data-bind="text:mean|number">2.5</td>
    """
    texts = [one.show(walk(scope, one.path)) for one in targets(binding) if one.name == "text"]
    inside = escape(texts[0]) if texts else ""
    return Markup(f"<{tag} {attributes(scope, binding, **fixed)}>{inside}</{tag}>")


def attributes(scope: Any, binding: str, /, **fixed: str) -> Markup:
    """The attributes alone, for an element with children."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in fixed.items()}
    given["data-bind"] = binding
    for one in targets(binding):
        value = False if one.name == "text" else one.show(walk(scope, one.path))
        if value is not False:
            given[one.name] = "" if value is True else value
    return Markup(" ".join([f'{name}="{escape(value)}"' for name, value in given.items()]))
