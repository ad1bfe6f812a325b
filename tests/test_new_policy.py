"""The worked example of CONTRIBUTING.md: a policy is one file and one line of the registry."""

import os
import re
import subprocess
import sys
from pathlib import Path

from bylot.policies import POLICY_CLASSES, registry

ROOT = Path(__file__).parents[1]
CHECKS = """
from rotate import Rotate
from sample_problem import make_five_expert_problem, make_recorded_environment
from traces import traces_are_equal

from bylot import Router, play, policies, simulate

policies.register_policy(Rotate)
assert policies.summarize_policy("rotate").startswith("asks the experts in turn")

# The router and the simulator play the same.
router = Router(make_five_expert_problem(), "rotate", seed=2)
trace = play(router, make_recorded_environment(40), 40)
environment = make_recorded_environment(40)
simulated = simulate(make_five_expert_problem(), environment, "rotate", rounds=40, seed=2)
assert traces_are_equal(trace, simulated)
assert router.core.state.drawn.tolist() == [[16] * 5]

# It is saved and continues where it stopped.
decision = router.decide()
assert decision.propensity is None
router.save("router.json")
loaded = Router.load("router.json")
assert policies.policy_to_data(loaded.policy) == {"name": "rotate"}
assert loaded.reward(decision.id, 0.5) == "learned"
assert [loaded.decide() for _ in range(5)] == [router.decide() for _ in range(5)]

# Its state follows the experts when the problem changes.
pool, router = make_five_expert_problem(), Router(make_five_expert_problem(), "rotate")
for _ in range(5):
    router.decide()
router.change(pool.replace(experts=[*pool.experts[1:], "new"]))
assert router.core.state.drawn.tolist() == [[2, 2, 2, 2, 0]]
assert "new" in router.decide().subset
"""


def test_the_example_policy_plays_is_saved_and_follows_a_change_of_the_problem(
    tmp_path: Path,
) -> None:
    """The process has its own cache: the shared one must not have types of the example."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'```python\n("""rotate.*?)```', page, re.DOTALL)
    (tmp_path / "rotate.py").write_text(code, encoding="utf-8")
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


def test_every_policy_describes_itself() -> None:
    assert all(kind.label and kind.summary and kind.streams for kind in POLICY_CLASSES.values())
    assert all(registry.summarize_policy(name) for name in registry.POLICIES)
