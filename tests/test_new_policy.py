"""A policy that is one file and one line of the registry: the worked example of CONTRIBUTING.md."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bylot import Router, play, simulate
from bylot.policies import POLICIES, POLICY_CLASSES, policy_to_data, register_policy, registry
from small import five, recorded
from traces import same

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _rotate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example as a module, registered."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(\"\"\"rotate.*?)```", page, re.DOTALL)
    path = tmp_path_factory.mktemp("policies") / "rotate.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("rotate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rotate"] = module
    spec.loader.exec_module(module)
    register_policy(module.Rotate)
    yield
    del POLICIES["rotate"], POLICY_CLASSES["rotate"], sys.modules["rotate"]


def test_it_plays_the_same_in_the_router_and_in_the_simulator() -> None:
    router = Router(five(), "rotate", seed=2)
    trace = play(router, recorded(40), 40)
    assert same(trace, simulate(five(), recorded(40), "rotate", rounds=40, seed=2))
    assert router.state.drawn.tolist() == [[16] * 5]
    assert router.decide().propensity is None


def test_it_is_saved_and_continues_where_it_stopped(tmp_path: Path) -> None:
    router = Router(five(), "rotate", seed=2)
    decisions = [router.decide() for _ in range(7)]
    router.save(tmp_path / "router.json")
    loaded = Router.load(tmp_path / "router.json")
    assert policy_to_data(loaded.policy) == {"name": "rotate"}
    assert loaded.reward(decisions[-1].id, 0.5) == "learned"
    assert [loaded.decide() for _ in range(5)] == [router.decide() for _ in range(5)]


def test_its_state_follows_the_experts_when_the_problem_changes() -> None:
    router, pool = Router(five(), "rotate"), five()
    for _ in range(5):
        router.decide()
    router.change(pool.replace(experts=[*pool.experts[1:], "new"]))
    assert router.state.drawn.tolist() == [[2, 2, 2, 2, 0]]
    assert "new" in router.decide().subset


def test_it_describes_itself() -> None:
    assert registry.summarize_policy("rotate").startswith("asks the experts in turn")
    assert all(kind.label and kind.summary for kind in POLICY_CLASSES.values())
    assert all(kind.streams or kind.name == "rotate" for kind in POLICY_CLASSES.values())
