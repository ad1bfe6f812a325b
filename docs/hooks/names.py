"""Reference pages of Python names: signatures from the source, docstrings as Markdown."""

import ast
import inspect
import re
from enum import Enum
from textwrap import dedent
from types import ModuleType
from typing import Any

import bylot
from bylot import environments, errors, policies, theory
from bylot.api import EventRecord, RouterSummary
from bylot.client import AsyncRouter, DecisionRequest, RemoteRouter, RewardItem
from bylot.limits.report import LimitInPeriod
from bylot.limits.status import LimitStatus
from bylot.limits.window_status import WindowStatus
from bylot.optima import BestSet, ShadowPrice, ValueStack, best_set, check_shadow_prices
from bylot.router.config import RouterConfig
from bylot.router.status import PeriodStatus, RouterStatus

Members = tuple[str, ...]
WIDTH = 88  # of a signature on one line
BEHIND = r"ClassVar|staticmethod"  # attributes for other parts of the package


def list_own_names(module: ModuleType) -> list[Any]:
    """List the public functions and classes that a module defines itself."""
    return [
        one
        for name, one in vars(module).items()
        if getattr(one, "__module__", None) == module.__name__ and not name.startswith("_")
    ]


PYTHON: dict[str, dict[Any, Members]] = {
    "Problem": {
        bylot.Problem: (
            "size",
            "rows",
            "bounds",
            "calendars",
            "box",
            "target",
            "surrogate_conflict",
            "full_conflict",
            "range_of",
            "replace",
        ),
        bylot.at_most: (),
        bylot.at_least: (),
        bylot.share: (),
        bylot.Limit: ("name", "side", "is_total", "at", "row"),
    },
    "Routing": {
        bylot.Router: ("t", "decide", "reward", "change", "status", "save", "load"),
        bylot.Decision: (),
        bylot.Receipt: (),
        RouterStatus: ("mean_cost", "expected_cost"),
        LimitStatus: (),
        LimitInPeriod: (),
        PeriodStatus: (),
        WindowStatus: (),
    },
    "Routers on a server": {
        bylot.Client: ("create", "router", "routers", "close"),
        RemoteRouter: (
            "decide",
            "reward",
            "decide_many",
            "reward_many",
            "activate",
            "cancel",
            "view",
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
    "Simulation": {
        bylot.simulate: (),
        bylot.play: (),
        bylot.Trace: ("rewards", "draws", "spend", "mean_spend"),
    },
    "Environments": {
        environments.Noisy: (),
        environments.Given: (),
        environments.Drifting: (),
        environments.Regime: (),
        environments.Outcomes: ("expected",),
        environments.RewardDelay: ("due",),
        environments.CallCosts: (),
        environments.Traffic: ("arrivals", "arrivals_until"),
    },
    "Optima and metrics": {
        bylot.optimum: (),
        bylot.Optimum: ("policy", "ceiling"),
        bylot.iid_optimum: (),
        bylot.IidOptimum: ("ceiling",),
        bylot.fluid_optimum: (),
        bylot.FluidOptimum: ("ceiling",),
        ValueStack: (),
        check_shadow_prices: (),
        ShadowPrice: ("central",),
        best_set: (),
        BestSet: (),
        bylot.score: (),
        bylot.Score: (),
    },
    "Bounds of the theorems": dict.fromkeys(list_own_names(theory), ()),
    "Errors": dict.fromkeys(list_own_names(errors), ()),
}
"""The names on the page by heading, with the members shown of each class."""


def python_page() -> str:
    """Render the page of the public names of `bylot`."""
    lead = (
        "# Python\n\nGenerated from the docstrings. Names that are not on this page may change "
        "without notice. The settings of each policy have [a page of their own](settings.md)."
    )
    groups = [
        "\n\n".join([f"## {title}", *(render_section(one, shown) for one, shown in group.items())])
        for title, group in PYTHON.items()
    ]
    return "\n\n".join([lead, *groups])


def settings_page() -> str:
    """Render the page of the settings of every policy."""
    lead = (
        "# Settings of policies\n\nA policy is given by its name or by its settings, as in "
        "`Router(problem, policies.Distinct(pace=1))`. [Policies](../policies.md) compares them. "
        "The classes of `strict` and the baselines are in `bylot_paper.policies`."
    )
    rows = [f"| `{name}` | `{made!r}` |" for name, made in policies.POLICIES.items()]
    table = "\n".join(["| name | is |", "|---|---|", *rows])
    classes = [policies.Auto, *[*policies.POLICY_CLASSES.values()][::-1]]
    kinds = [render_section(kind, ()) for kind in classes]
    return "\n\n".join(
        [
            lead,
            "## Settings classes",
            *kinds,
            render_section(policies.Omd.plain, ()),
            "## Names",
            table,
        ]
    )


def render_section(one: Any, shown: Members) -> str:
    """Render a name: heading, signature, docstring, and some of its members."""
    is_function = inspect.isroutine(one)
    code = format_signature(one.__qualname__, one) if is_function else format_constructor(one)
    parts = [
        f"### `{one.__qualname__}`",
        f"```python\n{code}\n```" if code else "",
        render_docstring(inspect.getdoc(one) or ""),
        *(render_member(one, name) for name in shown),
    ]
    return "\n\n".join(filter(None, parts))


def format_constructor(kind: type) -> str:
    """Format the `__init__` of a class or of its base, or its fields if it has none."""
    ours = (base for base in kind.__mro__ if base.__module__.startswith("bylot"))
    bodies = [parse_source(base).body for base in ours]
    functions = (part for body in bodies for part in body if isinstance(part, ast.FunctionDef))
    if not any(part.name == "__init__" for part in functions):
        return format_fields(kind)
    return format_signature(kind.__name__, kind.__init__)  # type: ignore[misc]


def read_source(one: Any) -> str:
    """Read the source of a class or a function."""
    return dedent(inspect.getsource(one))


def parse_source(one: Any) -> Any:
    """Parse the source of a class or a function."""
    return ast.parse(read_source(one)).body[0]


def format_signature(name: str, function: Any) -> str:
    """Format a signature as it is in the source, one argument per line if it is long.

    >>> format_signature("shaped", render_docstring)
    'shaped(docstring: str) -> str'
    """
    code, node = read_source(function), parse_source(function)
    back = ast.get_source_segment(code, node.returns) or ""
    back = re.sub(r"^HttpCall\[(.*)\]$", r"\1", back)  # sent, a request returns its answer
    end = "" if back == "None" else f" -> {back}".replace('"', "")
    given = format_arguments(code, node.args)
    line = f"{name}({', '.join(given)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){end}"])


def format_arguments(code: str, given: ast.arguments) -> list[str]:
    """Format the parameters, without `self`."""
    free, named = given.args, given.kwonlyargs
    defaults = [None] * (len(free) - len(given.defaults)) + list(given.defaults)
    pairs = zip([*free, *named], [*defaults, *given.kw_defaults], strict=True)
    parts = [
        segment(code, one) + (f" = {segment(code, default)}" if default else "")
        for one, default in pairs
    ]
    if named:
        parts.insert(len(free), "*")
    if given.kwarg:
        parts.append(f"**{segment(code, given.kwarg)}")
    return [one for one in parts if one not in ("self", "cls")]


def segment(code: str, node: ast.AST) -> str:
    """Return the source of a node."""
    return ast.get_source_segment(code, node) or ""


def format_fields(kind: type) -> str:
    """Format the fields of a record or the values of an enumeration, with their comments."""
    lines, node = read_source(kind).splitlines(), parse_source(kind)
    kept = []
    for part in node.body:
        line = lines[part.lineno - 1]
        if isinstance(part, ast.AnnAssign) and isinstance(part.value, ast.Name):  # of a constant
            value = getattr(kind, segment(read_source(kind), part.target))
            line = line.replace(f"= {part.value.id}", f"= {value!r}")
        shown = ast.AnnAssign | ast.Assign if issubclass(kind, Enum) else ast.AnnAssign
        if isinstance(part, shown) and not re.search(BEHIND, line):
            kept.append(line)
    return "\n".join([f"class {node.name}:", *kept]) if kept else ""


def render_member(kind: type, name: str) -> str:
    """Render a method under its own heading, or a property in a line."""
    found: Any = inspect.getattr_static(kind, name)
    said = render_docstring(inspect.getdoc(found) or "")
    inner = getattr(found, "func", None) or getattr(found, "fget", None)
    if inner is not None:
        of = segment(read_source(inner), parse_source(inner).returns)
        return f"`{kind.__name__}.{name}: {of}`\n:   {said.replace(chr(10), chr(10) + '    ')}"
    head = format_signature(f"{kind.__name__}.{name}", getattr(found, "__func__", found))
    return f"#### `{kind.__name__}.{name}`\n\n```python\n{head}\n```\n\n{said}"


SECTION = re.compile(r"^([A-Z]\w+(?: \w+)*)\n-{3,}\n", re.MULTILINE)
"""The heading of a numpydoc section."""


def render_docstring(docstring: str) -> str:
    """Render a numpydoc docstring as Markdown: sections, definition lists and examples."""
    prose, *sections = SECTION.split(docstring)
    parts = [render_paragraphs(prose)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        is_prose = title in ("Examples", "Notes", "References")
        content = render_paragraphs(body) if is_prose else render_definitions(body)
        parts.append(f"**{title}**\n\n{content}")
    return "\n\n".join(filter(None, parts))


def render_paragraphs(part: str) -> str:
    """Render paragraphs of prose, examples among them."""
    return "\n\n".join(render_paragraph(one) for one in re.split(r"\n\s*\n", part.strip()) if one)


def render_definitions(body: str) -> str:
    r"""Render the entries of a section such as Parameters or Raises.

    >>> print(render_definitions("bound : float\n    The bound,\n    at least 0.\nlimit\n    One."))
    `bound` (float)
    :   The bound, at least 0.
    <BLANKLINE>
    `limit`
    :   One.
    """
    entries = []
    for entry in re.split(r"\n(?=\S)", body.strip()):
        head, _, about = entry.partition("\n")
        name, _, kind = head.partition(" : ")
        term = f"`{name}`" + (f" ({kind})" if kind else "")
        entries.append(f"{term}\n:   {' '.join(about.split())}")
    return "\n\n".join(entries)


def render_paragraph(part: str) -> str:
    r"""Render a paragraph: prose, an example, or a list of `name: text`.

    >>> print(render_paragraph("seed: of all\nlong:  and\n       so on"))
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
