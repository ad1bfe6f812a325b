"""`bylot compile`: compile policies ahead of their first use, for images and test machines."""

import argparse
import time
from typing import Any

from bylot.cli.options import add_verb, print_result
from bylot.errors import BylotError

DEFAULT_POLICY = ["auto"]


def add(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "compile",
        run_compile,
        "compile policies ahead of their first use",
        "Compile policies for routers and simulations, so that their first use on this machine, or "
        "in an image built with this command, does not wait. The result is kept in "
        "$NUMBA_CACHE_DIR, else in the user's cache, for this version and this kind of processor. "
        "Seconds per policy are printed on standard error.",
    )
    verb.add_policies("policies to compile, or all", DEFAULT_POLICY)
    verb.add_json()


def run_compile(given: argparse.Namespace) -> None:
    from bylot._text import print_progress
    from bylot.numerics.compile_cache import CACHE_FOLDER
    from bylot.policies import POLICIES, find_policy

    if CACHE_FOLDER is None:
        raise BylotError(
            "there is no folder to keep compiled code in",
            remedy="set NUMBA_CACHE_DIR to a folder that can be written to",
        )
    names = given.policy or DEFAULT_POLICY
    names = list(POLICIES) if names == ["all"] else names
    for name in names:
        find_policy(name)  # an unknown name is an error before the first one is compiled
    seconds = {}
    for n, name in enumerate(names, 1):
        start = time.monotonic()
        compile_policy(name)
        seconds[name] = round(time.monotonic() - start, 1)
        print_progress(f"... {name}, {n} of {len(names)}: {seconds[name]} s")
    print_result(
        given,
        {"folder": CACHE_FOLDER, "seconds": seconds},
        f"{len(names)} compiled into {CACHE_FOLDER}",
    )


def compile_policy(name: str) -> None:
    """Do once all that routers and simulations do with a policy."""
    from bylot import simulate
    from bylot.environments import Noisy
    from bylot.policies import resolve_policy
    from bylot.router.exercise import exercise_policy, make_exercise_problem

    problem = make_exercise_problem()
    exercise_policy(resolve_policy(name, problem))
    simulate(problem, Noisy([[0.2, 0.5, 0.8, 0.4]]), name, rounds=1)
