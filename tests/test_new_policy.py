"""The worked examples of CONTRIBUTING.md: a policy in plain Python, and the same as one file."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import bylot
from bylot.environments import Noisy
from bylot.policies import POLICIES, POLICY_CLASSES, summarize_policy

ROOT = Path(__file__).parents[1]
CHECKS = """
import numpy as np
from sampler import Sampler
from sample_problem import make_five_expert_problem, make_recorded_environment
from traces import traces_are_equal

from bylot import Problem, Router, play, policies, simulate
from bylot.environments import Noisy

# It learns from scores of members, and is taken as it is.
pool = Problem([f"e{i}" for i in range(12)], draws=3)
good = Noisy(np.linspace(0.05, 0.6, 12)[None])
trace = simulate(pool, good, Sampler(), rounds=1_000, feedback="members")
assert (trace.draws[-200:] >= 8).mean() > 0.9
assert trace.rewards.mean() > simulate(pool, good, Sampler(), rounds=1_000).rewards.mean() + 0.1

policies.register_policy(Sampler)
assert policies.summarize_policy("sampler").startswith("asks the experts with the highest")

# The guard keeps limits that it ignores, and it counts the panels that are played.
guarded = Router(make_five_expert_problem(), Sampler(guard=True), seed=2, horizon=100)
panels = [guarded.decide() for _ in range(100)]
assert sum(panel.spend["usd"] for panel in panels) <= 300
assert any(panel.replaced for panel in panels)
experts = make_five_expert_problem().experts
asked = [sum(name in panel.subset for panel in panels) for name in experts]
assert guarded.core.state.drawn.tolist() == [asked]
free = Router(make_five_expert_problem(), Sampler(), seed=2)
assert sum(free.decide().spend["usd"] for _ in range(100)) > 300

# The router and the simulator play the same.
router = Router(make_five_expert_problem(), "sampler", seed=2)
trace = play(router, make_recorded_environment(40), 40)
environment = make_recorded_environment(40)
simulated = simulate(make_five_expert_problem(), environment, "sampler", rounds=40, seed=2)
assert traces_are_equal(trace, simulated)

# It is saved and continues where it stopped.
decision = router.decide()
assert decision.propensity is None
router.save("router.bylot")
loaded = Router.load("router.bylot")
assert policies.policy_to_data(loaded.policy) == {"name": "sampler"}
assert loaded.reward(decision.id, 0.5) == "learned"
assert [loaded.decide() for _ in range(5)] == [router.decide() for _ in range(5)]

# Its state follows the experts when the problem changes.
pool, router = make_five_expert_problem(), Router(make_five_expert_problem(), "sampler")
for _ in range(5):
    router.decide()
router.core.state.hits[0] = [1, 2, 3, 4, 5]
router.change(pool.replace(experts=[*pool.experts[1:], "new"]))
assert router.core.state.hits.tolist() == [[2, 3, 4, 5, 1]]
"""


def find_example(opening: str) -> str:
    """The block of CONTRIBUTING.md that begins with this docstring."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf'```python\n("""{opening}.*?)```', page, re.DOTALL)
    return str(code)


def test_the_compiled_example_learns_is_saved_and_follows_a_change_of_the_problem(
    tmp_path: Path,
) -> None:
    """The process has its own cache: the shared one must not have types of the example."""
    (tmp_path / "sampler.py").write_text(find_example("sampler: "), encoding="utf-8")
    paths = [str(tmp_path), str(ROOT / "tests"), str(ROOT / "src")]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run(
        [sys.executable, "-c", CHECKS],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_example_in_plain_python_has_at_most_40_lines_and_learns_from_scores() -> None:
    code = find_example("Thompson sampling on the scores")
    assert len(code.splitlines()) <= 40
    names: dict[str, Any] = {}
    exec(code, names)
    pool = bylot.Problem([f"e{i}" for i in range(12)], draws=3)
    environment = Noisy(np.linspace(0.05, 0.6, 12)[None])
    sampler = names["Sampler"]()
    trace = bylot.simulate(pool, environment, sampler, rounds=600, feedback="members")
    assert (trace.draws[-200:] >= 8).mean() > 0.9


def test_every_policy_describes_itself() -> None:
    assert all(kind.label and kind.summary and kind.streams for kind in POLICY_CLASSES.values())
    assert all(summarize_policy(name) for name in POLICIES)
