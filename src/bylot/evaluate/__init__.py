"""Off-policy evaluation: from a log with its odds, what another policy would have earned and cost.

`docs/log.md` says what is in a log, what each estimate claims, and what it cannot know.
"""

from bylot.evaluate.agreement import AGREEMENT_CAVEAT, PanelAgreement, measure_agreement
from bylot.evaluate.entries import LogEntry, entries_from_trace, entry_from_decision
from bylot.evaluate.estimators import RewardEstimate
from bylot.evaluate.log import (
    DecisionLog,
    find_unknown_experts,
    log_from_entries,
    read_log,
    write_log,
)
from bylot.evaluate.result import Evaluation, evaluate_target
from bylot.evaluate.targets import (
    EvaluationTarget,
    can_be_target,
    make_fixed_size_target,
    make_iid_target,
    make_optimum_target,
    make_panel_target,
    make_router_target,
    make_uniform_target,
)

__all__ = [
    "AGREEMENT_CAVEAT",
    "DecisionLog",
    "Evaluation",
    "EvaluationTarget",
    "LogEntry",
    "PanelAgreement",
    "RewardEstimate",
    "can_be_target",
    "entries_from_trace",
    "entry_from_decision",
    "evaluate_target",
    "find_unknown_experts",
    "log_from_entries",
    "make_fixed_size_target",
    "make_iid_target",
    "make_optimum_target",
    "make_panel_target",
    "make_router_target",
    "make_uniform_target",
    "measure_agreement",
    "read_log",
    "write_log",
]
