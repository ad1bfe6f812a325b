"""Policies of research: compiled code that is cached for them follows a change of their source."""

import sys

import numba
import pytest

from bylot import Problem, at_most
from bylot.numerics.compile_cache import describe_class, list_tuple_classes
from bylot.policies.catalog import POLICY_CLASSES, POLICY_HOMES, RESEARCH

POOL = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 3.0]}, [at_most("usd", 4.0)], draws=2)
DIGEST_LENGTH = 64  # of SHA-256, in hexadecimal
NAMES = [name for name, home in POLICY_HOMES.items() if str(home).startswith(RESEARCH)]


@pytest.mark.parametrize("policy", NAMES)
def test_cached_code_is_named_by_every_source_of_its_policy(policy: str) -> None:
    """A rule has types of every module with steps of its policy; their sources name the cache."""
    rule = POLICY_CLASSES[policy]().bind(POOL)
    classes = list_tuple_classes(numba.typeof(rule))
    sources = {kind.__module__ for kind in classes if kind.__module__.startswith(RESEARCH)}
    module = sys.modules[type(rule).__module__]
    used = {
        getattr(value, "__module__", None) or getattr(value, "__name__", "")
        for value in vars(module).values()
    }
    assert {name for name in used if str(name).startswith(f"{RESEARCH}.")} <= sources
    described = [describe_class(kind) for kind in classes if kind.__module__ in sources]
    assert all(len(text.split()[-1]) == DIGEST_LENGTH for text in described)
