"""The groups that the part past the paper looks at, and what it asks of several at once."""

from itertools import product

from bylot.experiments import HARD, LIMITED
from bylot.plots.ablation import variant
from bylot.plots.groups import Groups, Key
from bylot.plots.style import ENVIRONMENTS
from bylot.report.evidence import Evidence, Share, mean

LEVELS = (*LIMITED, "stress")
CELLS = tuple(product(LEVELS, ENVIRONMENTS))
"""The eight places of the comparison: a level and an environment each."""

HARD_CELLS = tuple(product(HARD, ENVIRONMENTS))
"""The four that everything else is played in."""


def compared(policy: str) -> list[Key]:
    """A policy's groups in the comparison."""
    return [Key("beyond", environment, level, policy, 3) for level, environment in CELLS]


def ablated(policy: str, part: str) -> list[Key]:
    """A policy's groups without one of its parts."""
    name = variant(policy, part)
    return [Key("ablation", environment, level, name, 3) for level, environment in HARD_CELLS]


def in_periods(groups: Groups, policy: str) -> list[Key]:
    """A policy's groups in periods, by place and length."""
    keys = [key for key in groups if key.experiment == "periods" and key.policy == policy]
    places = list(HARD_CELLS)
    return sorted(keys, key=lambda key: (places.index((key.level, key.environment)), key.period))


def tuned(groups: Groups, policy: str) -> dict[str, list[Key]]:
    """The groups of each setting of a policy that was played in all four places."""
    found: dict[str, list[Key]] = {}
    for key in groups:
        if key.experiment == "settings" and key.policy.partition(":")[0] == policy:
            found.setdefault(key.policy.partition(":")[2], []).append(key)
    return {setting: keys for setting, keys in found.items() if len(keys) == len(HARD_CELLS)}


def regret(evidence: Evidence, keys: list[Key]) -> float:
    """Mean over places of the mean over seeds."""
    return sum(mean(evidence.values(key, "regret_true")) for key in keys) / len(keys)


def feasible(evidence: Evidence, keys: list[Key]) -> Share:
    """Of all runs of all places."""
    shares = [evidence.feasible(key) for key in keys]
    return Share(sum(one.kept for one in shares), sum(one.runs for one in shares))


def place(key: Key) -> str:
    """Where, in words."""
    return f"{key.level} {key.environment}"
