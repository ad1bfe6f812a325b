"""Pages of Python names: signatures and fields as the source has them, docstrings as Markdown."""

import ast
import inspect
import re
from textwrap import dedent
from types import ModuleType
from typing import Any

import bylot
from bylot import environments, errors, policies, theory
from bylot.api import EventRecord, RouterSummary
from bylot.client import AsyncRouter, DecisionRequest, RemoteRouter, RewardItem
from bylot.optima import BestSet, ShadowPrice, ValueStack, best_set, check_shadow_prices
from bylot.policies import Adaptive, Anytime, Fixed
from bylot.router.config import RouterConfig
from bylot.router.status import LimitInPeriod, LimitStatus, PeriodStatus, RouterStatus

Members = tuple[str, ...]
WIDTH = 88  # of a signature on one line
BEHIND = r"ClassVar|staticmethod"  # what a class sets for other parts of the package


def own(module: ModuleType) -> list[Any]:
    """The public functions and classes that a module defines itself, in its order."""
    return [
        one
        for name, one in vars(module).items()
        if getattr(one, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


PYTHON: dict[str, dict[Any, Members]] = {
    "The pool": {
        bylot.Problem: (
            "size",
            "rows",
            "bounds",
            "box",
            "target",
            "surrogate_conflict",
            "full_conflict",
            "range_of",
        ),
        bylot.at_most: (),
        bylot.at_least: (),
        bylot.share: (),
        bylot.Limit: ("name", "side", "at"),
    },
    "Routing": {
        bylot.Router: ("t", "decide", "reward", "status", "save", "load"),
        bylot.Decision: (),
        bylot.Receipt: (),
        RouterStatus: ("mean_cost", "expected_cost"),
        LimitStatus: ("way_out",),
        LimitInPeriod: (),
        PeriodStatus: (),
    },
    "A server's routers": {
        bylot.Client: ("create", "router", "routers", "close"),
        RemoteRouter: (
            "decide",
            "reward",
            "decide_many",
            "reward_many",
            "activate",
            "cancel",
            "status",
            "config",
            "edit",
            "events",
            "delete",
        ),
        bylot.AsyncClient: (),
        AsyncRouter: (),
        DecisionRequest: (),
        RewardItem: (),
        RouterConfig: (),
        RouterSummary: (),
        EventRecord: (),
    },
    "Playing": {
        bylot.simulate: (),
        bylot.play: (),
        bylot.Trace: ("rewards", "draws", "spend", "mean_spend"),
    },
    "Worlds": {
        environments.Noisy: (),
        environments.Given: (),
        environments.Drifting: (),
        environments.Regime: (),
        environments.Outcomes: ("expected",),
        environments.RewardDelay: ("due",),
    },
    "Judging": {
        bylot.optimum: (),
        bylot.Optimum: ("ceiling",),
        bylot.best_mixture: (),
        bylot.Mixture: ("ceiling",),
        ValueStack: (),
        check_shadow_prices: (),
        ShadowPrice: ("central",),
        best_set: (),
        BestSet: (),
        bylot.score: (),
        bylot.Score: (),
    },
    "The theorems' bounds": dict.fromkeys(own(theory), ()),
    "Errors": dict.fromkeys(own(errors), ()),
}
"""What the page of Python names shows, and which members of a class."""


def python_page() -> str:
    """The public names of `bylot`."""
    lead = (
        "# Python\n\nMade from the docstrings when this site was built. Whatever is not here is "
        "not promised to stay as it is. The settings of each policy have "
        "[a page of their own](settings.md)."
    )
    groups = [
        "\n\n".join([f"## {title}", *(section(one, shown) for one, shown in group.items())])
        for title, group in PYTHON.items()
    ]
    return "\n\n".join([lead, *groups])


def settings_page() -> str:
    """Every policy's settings."""
    lead = (
        "# Settings of policies\n\nA policy is given by its name or by its settings, as in "
        "`Router(problem, policies.Distinct(pace=1))`. What each promises, and which to take, is "
        "told in [Which to take](../policies.md)."
    )
    rows = [f"| `{name}` | `{made!r}` |" for name, made in policies.POLICIES.items()]
    table = "\n".join(["| name | is |", "|---|---|", *rows])
    kinds = [section(kind, ()) for kind in [*policies.ALL_POLICY_CLASSES.values()][::-1]]
    steps = [section(kind, ()) for kind in (Fixed, Anytime, Adaptive)]
    return "\n\n".join(
        [
            lead,
            "## Settings classes",
            *kinds,
            section(policies.Omd.plain, ()),
            "## Step rules of OMD's dual player",
            *steps,
            "## Names",
            table,
        ]
    )


def section(one: Any, shown: Members) -> str:
    """One name: a heading, how it is called, what its docstring says, and the members shown."""
    code = called(one.__qualname__, one) if inspect.isroutine(one) else made(one)
    parts = [
        f"### `{one.__qualname__}`",
        f"```python\n{code}\n```" if code else "",
        text(inspect.getdoc(one) or ""),
        *(member(one, name) for name in shown),
    ]
    return "\n\n".join(filter(None, parts))


def made(kind: type) -> str:
    """How a class is made: its `__init__` if it has one, else its fields."""
    body = parsed(kind).body
    own = any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in body)
    return called(kind.__name__, kind.__init__) if own else fields(kind)  # type: ignore[misc]


def source(one: Any) -> str:
    """The source of a class or a function."""
    return dedent(inspect.getsource(one))


def parsed(one: Any) -> Any:
    """The same as a tree."""
    return ast.parse(source(one)).body[0]


def called(name: str, function: Any) -> str:
    """A signature as the source has it, one argument a line if it is long.

    >>> called("shaped", text)
    'shaped(docstring: str) -> str'
    """
    code, node = source(function), parsed(function)
    back = ast.get_source_segment(code, node.returns)
    end = "" if back == "None" else f" -> {back}".replace('"', "")
    given = arguments(code, node.args)
    line = f"{name}({', '.join(given)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){end}"])


def arguments(code: str, given: ast.arguments) -> list[str]:
    """What can be given, `self` apart."""
    free, named = given.args, given.kwonlyargs
    defaults = [None] * (len(free) - len(given.defaults)) + list(given.defaults)
    pairs = zip([*free, *named], [*defaults, *given.kw_defaults], strict=True)
    told = [
        segment(code, one) + (f" = {segment(code, default)}" if default else "")
        for one, default in pairs
    ]
    if named:
        told.insert(len(free), "*")
    return [one for one in told if one not in ("self", "cls")]


def segment(code: str, node: ast.AST) -> str:
    """A piece of source as it is written."""
    return ast.get_source_segment(code, node) or ""


def fields(kind: type) -> str:
    """The fields of a record, or the values of an enumeration, line by line with their comments."""
    lines, node = source(kind).splitlines(), parsed(kind)
    kept = []
    for part in node.body:
        line = lines[part.lineno - 1]
        if isinstance(part, ast.AnnAssign) and isinstance(part.value, ast.Name):  # of a constant
            value = getattr(kind, segment(source(kind), part.target))
            line = line.replace(f"= {part.value.id}", f"= {value!r}")
        if isinstance(part, ast.AnnAssign | ast.Assign) and not re.search(BEHIND, line):
            kept.append(line)
    return "\n".join([f"class {node.name}:", *kept]) if kept else ""


def member(kind: type, name: str) -> str:
    """A method under its own heading, or a property in a line."""
    found: Any = inspect.getattr_static(kind, name)
    said = text(inspect.getdoc(found) or "")
    inner = getattr(found, "func", None) or getattr(found, "fget", None)
    if inner is not None:
        of = segment(source(inner), parsed(inner).returns)
        return f"`{kind.__name__}.{name}: {of}`\n:   {said.replace(chr(10), chr(10) + '    ')}"
    head = called(f"{kind.__name__}.{name}", getattr(found, "__func__", found))
    return f"#### `{kind.__name__}.{name}`\n\n```python\n{head}\n```\n\n{said}"


SECTION = re.compile(r"^([A-Z]\w+(?: \w+)*)\n-{3,}\n", re.MULTILINE)
"""The heading of a numpydoc section."""


def text(docstring: str) -> str:
    """Render a numpydoc docstring as Markdown: sections, definition lists and examples."""
    prose, *sections = SECTION.split(docstring)
    parts = [paragraphs(prose)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        is_prose = title in ("Examples", "Notes", "References")
        parts.append(f"**{title}**\n\n{paragraphs(body) if is_prose else definitions(body)}")
    return "\n\n".join(filter(None, parts))


def paragraphs(part: str) -> str:
    """Render paragraphs of prose, examples among them."""
    return "\n\n".join(paragraph(one) for one in re.split(r"\n\s*\n", part.strip()) if one)


def definitions(body: str) -> str:
    r"""Render the entries of a section such as Parameters or Raises.

    >>> print(definitions("bound : float\n    The bound,\n    at least 0.\nlimit\n    A limit."))
    `bound` (float)
    :   The bound, at least 0.
    <BLANKLINE>
    `limit`
    :   A limit.
    """
    entries = []
    for entry in re.split(r"\n(?=\S)", body.strip()):
        head, _, about = entry.partition("\n")
        name, _, kind = head.partition(" : ")
        term = f"`{name}`" + (f" ({kind})" if kind else "")
        entries.append(f"{term}\n:   {' '.join(about.split())}")
    return "\n\n".join(entries)


def paragraph(part: str) -> str:
    r"""One paragraph.

    >>> print(paragraph("seed: of all\nlong:  and\n       so on"))
    `seed`
    :   of all
    <BLANKLINE>
    `long`
    :   and so on
    """
    lines = part.splitlines()
    if lines[0].startswith(">>>"):
        return f"```pycon\n{part}\n```"
    item = re.compile(r"(\w+(?:, \w+)*):\s+(\S.*)")
    if item.match(lines[0]) and all(item.match(line) or line.startswith("   ") for line in lines):
        joined = re.sub(r"\n\s+", " ", part)
        return "\n\n".join(f"`{found[1]}`\n:   {found[2]}" for found in item.finditer(joined))
    return part
