"""Writing a problem as a file that reads back equal."""

import json

from bylot.errors import ProblemError
from bylot.problem import Problem, Share
from bylot.problem.validation import check_floor
from bylot.problem_files.schema import EXPERT_SHAPE, NAME_RULE, is_readable_name
from bylot.problem_files.yaml_nodes import resolve_scalar


def write(problem: Problem) -> str:
    """A problem as YAML; every bound is written per request, and numbers lose nothing.

    >>> from bylot.problem import at_least, share
    >>> quota = at_least(share("junior", ["bob"]), 0.3)
    >>> print(write(Problem(["ann", "bob"], {"usd": [2.0, 1.0]}, [quota], draws=1)), end="")
    draws: 1
    costs:
      usd: ""
    experts:
      - {name: ann, usd: 2.0}
      - {name: bob, usd: 1.0}
    groups:
      junior: [bob]
    limits:
      - {group: junior, at_least: 0.3, per: request}
    """
    return (
        "\n".join([*settings_lines(problem), *expert_lines(problem), *limit_lines(problem)]) + "\n"
    )


def settings_lines(problem: Problem) -> list[str]:
    """What is not the default."""
    lines = [f"draws: {problem.draws}"]
    if problem.floor != check_floor(None, problem.size):
        lines.append(f"floor: {problem.floor!r}")
    if problem.period is not None:
        lines.append(f"period: {problem.period}")
    return lines


def expert_lines(problem: Problem) -> list[str]:
    """Experts with their costs, but for those that only count the members of a group."""
    shares = {limit.name: limit.cost for limit in problem.limits if isinstance(limit.cost, Share)}
    limited = {limit.name for limit in problem.limits if isinstance(limit.cost, str)}
    costs = [name for name in problem.costs if name not in shares or name in limited]
    for name in EXPERT_SHAPE.fields:
        if name in costs:
            raise ProblemError(f"no cost can be called {name!r} in a file; call it otherwise")
    lines = ["costs:", *(f'  {yaml_word(name)}: ""' for name in costs)] if costs else []
    lines.append("experts:")
    for i, expert in enumerate(problem.experts):
        paid = [f"{yaml_word(name)}: {float(problem.costs[name][i])!r}" for name in costs]
        lines.append(f"  - {{{', '.join([f'name: {yaml_word(expert)}', *paid])}}}")
    if shares:
        lines.append("groups:")
    for name, group in shares.items():
        lines.append(f"  {yaml_word(name)}: [{', '.join(map(yaml_word, group.members))}]")
    return lines


def limit_lines(problem: Problem) -> list[str]:
    """Limits, one a line."""
    lines = ["limits:"] if problem.limits else []
    for limit in problem.limits:
        kind = "group" if isinstance(limit.cost, Share) else "cost"
        bound = f"{limit.side}: {limit.bound!r}, per: request"
        lines.append(f"  - {{{kind}: {yaml_word(limit.name)}, {bound}}}")
    return lines


def yaml_word(name: str) -> str:
    """A name as YAML: bare if nothing else can be meant, else in quotes.

    >>> print(yaml_word("ann"), yaml_word("no"), yaml_word("1e3"), yaml_word("a: b"))
    ann "no" "1e3" "a: b"
    """
    if not is_readable_name(name):
        raise ProblemError(f"{name!r} is no name for a file; choose one {NAME_RULE}")
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    bare = bare and name[0].isalpha() and resolve_scalar(name) == name
    return name if bare else json.dumps(name, ensure_ascii=False)
