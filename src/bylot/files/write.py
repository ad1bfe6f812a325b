"""Writing a problem as a file that reads back equal."""

import json

from bylot.errors import ProblemError
from bylot.files.form import EXPERT
from bylot.files.shape import READABLE, readable
from bylot.files.yamls import meaning
from bylot.problem import Problem, Share
from bylot.problem.reading import floor


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
    return "\n".join([*settings(problem), *pool(problem), *promises(problem)]) + "\n"


def settings(problem: Problem) -> list[str]:
    """What is not the default."""
    lines = [f"draws: {problem.draws}"]
    if problem.floor != floor(None, problem.size):
        lines.append(f"floor: {problem.floor!r}")
    if problem.period is not None:
        lines.append(f"period: {problem.period}")
    return lines


def pool(problem: Problem) -> list[str]:
    """Experts with their costs, but for those that only count the members of a group."""
    shares = {limit.name: limit.cost for limit in problem.limits if isinstance(limit.cost, Share)}
    limited = {limit.name for limit in problem.limits if isinstance(limit.cost, str)}
    costs = [name for name in problem.costs if name not in shares or name in limited]
    for name in EXPERT.fields:
        if name in costs:
            raise ProblemError(f"no cost can be called {name!r} in a file; call it otherwise")
    lines = ["costs:", *(f'  {word(name)}: ""' for name in costs)] if costs else []
    lines.append("experts:")
    for i, expert in enumerate(problem.experts):
        paid = [f"{word(name)}: {float(problem.costs[name][i])!r}" for name in costs]
        lines.append(f"  - {{{', '.join([f'name: {word(expert)}', *paid])}}}")
    if shares:
        lines.append("groups:")
    for name, group in shares.items():
        lines.append(f"  {word(name)}: [{', '.join(map(word, group.members))}]")
    return lines


def promises(problem: Problem) -> list[str]:
    """Limits, one a line."""
    lines = ["limits:"] if problem.limits else []
    for limit in problem.limits:
        kind = "group" if isinstance(limit.cost, Share) else "cost"
        bound = f"{limit.side}: {limit.bound!r}, per: request"
        lines.append(f"  - {{{kind}: {word(limit.name)}, {bound}}}")
    return lines


def word(name: str) -> str:
    """A name as YAML: bare if nothing else can be meant, else in quotes.

    >>> print(word("ann"), word("no"), word("1e3"), word("a: b"))
    ann "no" "1e3" "a: b"
    """
    if not readable(name):
        raise ProblemError(f"{name!r} is no name for a file; choose one {READABLE}")
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    bare = bare and name[0].isalpha() and meaning(name) == name
    return name if bare else json.dumps(name, ensure_ascii=False)
