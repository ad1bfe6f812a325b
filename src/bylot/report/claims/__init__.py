"""Every sentence of the paper's results that can be true or false, judged by measured numbers.

Each module says which sentences it leaves out, and why. Verdicts are computed, never typed in.
"""

from bylot.report.claims import (
    changing,  # noqa: F401
    dynamics,  # noqa: F401
    relaxation,  # noqa: F401
    sweep_limits,  # noqa: F401
    sweep_regret,  # noqa: F401
    tradeoff,  # noqa: F401
)
from bylot.report.claims.registry import CLAIMS, FAILS, HOLDS, UNKNOWN, Row, judge_all

__all__ = ["CLAIMS", "FAILS", "HOLDS", "UNKNOWN", "Row", "judge_all"]
