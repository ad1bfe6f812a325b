"""Every policy plays as recorded: a change of names, layout or types changes no decision.

`python tests/test_golden.py` records the plays again. Do that only for an intended change of an
algorithm, and say so in the CHANGELOG.
"""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import bylot
from bylot.environments import Noisy, RewardDelay
from bylot.policies import POLICIES

GOLDEN = Path(__file__).parent / "golden_plays.json"
ROUNDS = 600


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


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_plays_as_recorded(policy: str) -> None:
    golden = json.loads(GOLDEN.read_text())[policy]
    found = play_golden(policy)
    assert found["panels"] == golden["panels"]
    assert found["reward"] == pytest.approx(golden["reward"], abs=1e-12)
    assert found["usd"] == pytest.approx(golden["usd"], abs=1e-12)


if __name__ == "__main__":
    plays = {policy: play_golden(policy) for policy in POLICIES}
    GOLDEN.write_text(json.dumps(plays, indent=1) + "\n")
