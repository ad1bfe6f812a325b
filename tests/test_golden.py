"""Every policy plays as recorded: a change of names, layout or types changes no decision.

`python tests/test_golden.py` records the plays again, `python tests/test_golden.py hour tangent`
only those with a word of these in their names. Do that only for an intended change of an algorithm,
and say so in the CHANGELOG. Numbers of scenes are compared by their bits.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.environments import Noisy, RewardDelay
from golden_scenes import PRODUCT, RESEARCH, list_scenes, play_scene

GOLDEN = Path(__file__).parent / "golden_plays.json"
ROUNDS = 600
VARIANTS = ("omd-plain", "omd-sum", "omd-frozen", "cbwk-instant", "ts-bwk-instant")
POLICIES = (*PRODUCT, *RESEARCH, *VARIANTS)
SCENES = list_scenes()
PLAYS = {
    f"{kind}, {policy}, {way}": (scene, policy, way)
    for kind, scene in SCENES.items()
    for policy in scene.policies
    for way in (scene.ways if policy not in RESEARCH else ("simulator",))
}


def make_problem() -> bylot.Problem:
    """Eight experts under a budget, a cap and a minimum share."""
    return bylot.Problem(
        experts=[f"e{i}" for i in range(8)],
        costs={
            "usd": [1.0, 2.0, 3.0, 1.5, 0.5, 4.0, 2.2, 0.9],
            "gpu": [0, 1, 1, 0, 0, 1, 0, 1],
        },
        limits=[
            bylot.at_most("usd", 5.5),
            bylot.at_most("gpu", 1.2),
            bylot.at_least(bylot.share("new", ["e5", "e6"]), 0.4),
        ],
        draws=3,
        period=500,
    )


def play_golden(policy: str) -> dict[str, str | float]:
    """The panels of a simulation with late and missing rewards, and their mean reward and cost."""
    environment = Noisy(np.random.default_rng(3).uniform(0.1, 0.9, size=(3, 8)), worth=1 / 3)
    trace = bylot.simulate(
        make_problem(),
        environment,
        policy,
        rounds=ROUNDS,
        seed=7,
        late=RewardDelay(lag=20, lost=0.1),
    )
    return {
        "panels": sha256(np.ascontiguousarray(trace.draws, dtype="<i8").tobytes()).hexdigest()[:16],
        "reward": float(trace.rewards.mean()),
        "usd": float(trace.spend[:, 0].mean()),
    }


def read_golden(name: str) -> dict[str, Any]:
    """Return what was recorded of a play."""
    found: dict[str, Any] = json.loads(GOLDEN.read_text())[name]
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_plays_as_recorded(policy: str) -> None:
    golden = read_golden(policy)
    found = play_golden(policy)
    assert found["panels"] == golden["panels"]
    assert found["reward"] == pytest.approx(golden["reward"], abs=1e-12)
    assert found["usd"] == pytest.approx(golden["usd"], abs=1e-12)


@pytest.mark.filterwarnings("ignore::bylot.errors.SurrogateWarning")
@pytest.mark.parametrize("name", PLAYS)
def test_a_policy_keeps_limits_as_recorded(name: str) -> None:
    golden = read_golden(name)
    found = play_scene(*PLAYS[name])
    assert found == golden


def record_plays(words: list[str]) -> None:
    """Record the plays that have one of the words in their names, all without words."""
    plays = json.loads(GOLDEN.read_text())
    wanted = {name: play for name, play in PLAYS.items() if has_word(name, words)}
    found: dict[str, Any] = {name: play_golden(name) for name in POLICIES if has_word(name, words)}
    found |= {name: play_scene(*play) for name, play in wanted.items()}
    plays = {name: found.get(name) or plays[name] for name in (*POLICIES, *PLAYS)}
    lines = (f" {json.dumps(name)}: {json.dumps(play)}" for name, play in plays.items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def has_word(name: str, words: list[str]) -> bool:
    return not words or any(word in name for word in words)


if __name__ == "__main__":
    record_plays(sys.argv[1:])
