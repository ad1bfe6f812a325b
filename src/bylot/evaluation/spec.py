"""Targets in the words of a command line: uniform, now, set:ANN,BOB and the like."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from bylot.errors import SavedFileError, TargetError
from bylot.evaluation import targets
from bylot.evaluation.log import once
from bylot.evaluation.targets import Target
from bylot.problem import Problem
from bylot.router import Router

KINDS = (
    "uniform, now, set:ANN,BOB, draws:WEIGHTS, sets:WEIGHTS or router:FILE, "
    "WEIGHTS being ANN=0.5,BOB=0.25 or a JSON file"
)


def target(
    spec: str, problem: Problem, router: Router | None = None, gone: Collection[str] = ()
) -> Target:
    """The target that is meant, for a problem and, if there is one, the router that `now` is of.

    gone: experts that have left the problem, whom no target can ask
    """
    kind, _, rest = spec.partition(":")
    if spec == "uniform":
        return targets.uniform(problem)
    if spec == "now":
        if router is None:
            raise TargetError(
                "target 'now' is the law of a saved router, and there is none: what a served "
                "router has learned is with its server; give --problem-from ROUTER.json, or the "
                "target router:ROUTER.json"
            )
        return targets.now(problem, router)
    if rest and kind == "set":
        names = [name.strip() for name in rest.split(",")]
        there(names, problem, gone, spec)
        return targets.panel(problem, once_each(names, spec), spec)
    if rest and kind in ("draws", "sets"):
        given = weights(rest, spec)
        there([*named(given)], problem, gone, spec)
        if kind == "draws":
            return targets.draws(problem, given, spec)
        return targets.sets(problem, given, spec)
    if rest and kind == "router":
        return targets.now(problem, load(rest, spec), spec)
    raise TargetError(f"there is no target {spec!r}; wanted {KINDS}")


def there(names: list[str], problem: Problem, gone: Collection[str], spec: str) -> None:
    """Refuse those that have left."""
    left = [name for name in names if name in gone and name not in problem.experts]
    if left:
        raise TargetError(
            f"target {spec!r}: {left[0]!r} has left the pool, so that nobody could ask it now; "
            "name experts that are still there"
        )


def named(weights: Mapping[str, Any]) -> Iterator[str]:
    """The experts of weights, by name or by context and name."""
    for name, given in weights.items():
        yield from given if isinstance(given, Mapping) else (name,)


def load(path: str, spec: str) -> Router:
    """The router of a file, with the target in the error if it cannot be read."""
    try:
        return Router.load(path)
    except SavedFileError as error:
        raise TargetError(f"target {spec!r}: {error}") from None


def weights(text: str, spec: str) -> dict[str, Any]:
    """Weights by name, from a JSON file or from the words themselves."""
    if not Path(text).is_file() and "=" in text:
        pairs = [pair(one, spec) for one in text.split(",")]
        once_each([name for name, _ in pairs], spec)
        return dict(pairs)
    try:
        given = json.loads(Path(text).read_text(encoding="utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        raise TargetError(
            f"target {spec!r}: {text} cannot be read ({error.strerror}); give a JSON file, or "
            "weights as ANN=0.5,BOB=0.25"
        ) from None
    except (ValueError, RecursionError) as error:
        raise TargetError(f"target {spec!r}: {text} is not JSON ({error}); correct it") from None
    if not isinstance(given, dict):
        raise TargetError(f'target {spec!r}: {text} holds no object; write {{"ann": 0.5, ...}}')
    return given


def pair(text: str, spec: str) -> tuple[str, float]:
    """A name and its weight."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise TargetError(
            f"target {spec!r}: {text!r} is no NAME=WEIGHT; write ANN=0.5,BOB=0.25, or give a "
            "JSON file if a name holds a comma or an equals sign"
        ) from None


def once_each(names: list[str], spec: str) -> list[str]:
    """The names, if they are all different."""
    for n, name in enumerate(names):
        if name in names[:n]:
            raise TargetError(f"target {spec!r} names {name!r} twice; name each expert once")
    return names
