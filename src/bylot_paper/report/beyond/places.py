"""The groups that the part past the paper looks at, and what it asks of several at once."""

from itertools import product

from bylot.reports.style import ENVIRONMENT_LABELS
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.evidence import Evidence, RunShare, seed_mean
from bylot_paper.grid import BINDING_LEVELS, LIMITED_LEVELS
from bylot_paper.plots.beyond import name_variant

BEYOND_LEVELS = (*LIMITED_LEVELS, "stress")
BEYOND_CASES = tuple(product(BEYOND_LEVELS, ENVIRONMENT_LABELS))
"""The eight places of the comparison: a level and an environment each."""

HARD_CASES = tuple(product(BINDING_LEVELS, ENVIRONMENT_LABELS))
"""The four that everything else is played in."""


def comparison_keys(policy: str) -> list[GroupKey]:
    """A policy's groups in the comparison."""
    return [
        GroupKey("beyond", environment, level, policy, 3) for level, environment in BEYOND_CASES
    ]


def ablation_keys(policy: str, part: str) -> list[GroupKey]:
    """A policy's groups without one of its parts."""
    name = name_variant(policy, part)
    return [GroupKey("ablation", environment, level, name, 3) for level, environment in HARD_CASES]


def period_keys(groups: RecordGroups, policy: str) -> list[GroupKey]:
    """A policy's groups in periods, by place and length."""
    keys = [key for key in groups if key.experiment == "periods" and key.policy == policy]
    places = list(HARD_CASES)
    return sorted(keys, key=lambda key: (places.index((key.level, key.environment)), key.period))


def settings_keys(groups: RecordGroups, policy: str) -> dict[str, list[GroupKey]]:
    """The groups of each setting of a policy that was played in all four places."""
    found: dict[str, list[GroupKey]] = {}
    for key in groups:
        if key.experiment == "settings" and key.policy.partition(":")[0] == policy:
            found.setdefault(key.policy.partition(":")[2], []).append(key)
    return {setting: keys for setting, keys in found.items() if len(keys) == len(HARD_CASES)}


def mean_regret(evidence: Evidence, keys: list[GroupKey]) -> float:
    """Mean over places of the mean over seeds."""
    return sum(seed_mean(evidence.values(key, "regret_true")) for key in keys) / len(keys)


def pooled_feasible_share(evidence: Evidence, keys: list[GroupKey]) -> RunShare:
    """Of all runs of all places."""
    shares = [evidence.feasible(key) for key in keys]
    return RunShare(sum(one.kept for one in shares), sum(one.runs for one in shares))


def name_place(key: GroupKey) -> str:
    """Where, in words."""
    return f"{key.level} {key.environment}"
