"""Worlds to play in: pure in (seed, t), so that all policies meet the same rounds."""

from bylot.environments.base import Environment, Rounds
from bylot.environments.drifting import Drifting
from bylot.environments.given import Given
from bylot.environments.late import PROMPT, Late
from bylot.environments.noisy import Noisy
from bylot.environments.outcomes import Outcomes
from bylot.environments.regime import Regime

__all__ = [
    "PROMPT",
    "Drifting",
    "Environment",
    "Given",
    "Late",
    "Noisy",
    "Outcomes",
    "Regime",
    "Rounds",
]
