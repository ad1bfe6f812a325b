"""How an element of a page says which value it shows, so that the browser can renew it.

`data-bind="text:mean|number width:gauge.mean|width"` says: my text is `mean`, written by the format
`number`; my attribute `width` is `gauge.mean`. `data-each="limits"` says: after my <template> I
have a child for every one of `limits`, made as in it. Paths start at the page's data, or within an
each at the item. The templates call these functions; `static/bind.js` does the same to a page that
is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bylot.service.pages.words import FORMATS


def lookup(scope: Any, path: str) -> Any:
    """The value at a dotted path, of structs, mappings and lists; None if there is none.

    >>> lookup({"now": {"mean": 2.5}}, "now.mean"), lookup(None, "now.mean")
    (2.5, None)
    """
    for step in path.split(".") if path != "." else ():
        if scope is None:
            return None
        if isinstance(scope, Mapping):
            scope = scope.get(step)
        elif isinstance(scope, Sequence):
            scope = scope[int(step)] if int(step) < len(scope) else None
        else:
            scope = getattr(scope, step)
    return scope


def shown(scope: Any, source: str) -> Any:
    """What `path|format` comes to; `path|given` and `path|missing` are true or false."""
    path, _, word = source.partition("|")
    value = lookup(scope, path)
    if word in ("given", "missing"):
        return bool(value) == (word == "given")
    return FORMATS[word or "plain"](value)


def element(tag: str, scope: Any, binding: str, /, **fixed: str) -> Markup:
    """An element whose text and attributes are bound.

    >>> print(element("td", {"mean": 2.5}, "text:mean|number", title="so far"))
    <td title="so far" data-bind="text:mean|number">2.5</td>
    """
    targets = dict(one.split(":", 1) for one in binding.split(" "))
    text = shown(scope, targets["text"]) if "text" in targets else ""
    return Markup("<{0} {1}>{2}</{0}>").format(tag, attributes(scope, binding, **fixed), text)


def attributes(scope: Any, binding: str, /, **fixed: str) -> Markup:
    """The attributes alone, for an element with children."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in fixed.items()}
    given["data-bind"] = binding
    for one in binding.split(" "):
        target, source = one.split(":", 1)
        value = shown(scope, source) if target != "text" else False
        if value is not False:
            given[target] = "" if value is True else value
    return Markup(" ").join(Markup('{}="{}"').format(name, text) for name, text in given.items())
