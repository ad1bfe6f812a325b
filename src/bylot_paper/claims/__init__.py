"""Every sentence of the paper's results that can be true or false, judged by measured numbers.

Each module says which sentences it leaves out, and why. Verdicts are computed, never typed in.
"""

from bylot.reports.blocks import FAILS, HOLDS, UNKNOWN, JudgedClaim
from bylot_paper.claims import (  # noqa: F401 - importing a module registers its claims
    changing,
    dynamics,
    relaxation,
    sweep_limits,
    sweep_regret,
    tradeoff,
)
from bylot_paper.claims.judging import CLAIMS, judge_claims

__all__ = ["CLAIMS", "FAILS", "HOLDS", "UNKNOWN", "JudgedClaim", "judge_claims"]
