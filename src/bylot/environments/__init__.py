"""Environments: pure in (seed, t), so that all policies meet the same rounds."""

from bylot.environments.base import Environment, Given, Rounds
from bylot.environments.call_costs import CallCosts
from bylot.environments.delays import NO_DELAY, RewardDelay
from bylot.environments.outcomes import Outcomes
from bylot.environments.synthetic import Drifting, Noisy, Regime
from bylot.environments.traffic import Traffic

__all__ = [
    "NO_DELAY",
    "CallCosts",
    "Drifting",
    "Environment",
    "Given",
    "Noisy",
    "Outcomes",
    "Regime",
    "RewardDelay",
    "Rounds",
    "Traffic",
]
