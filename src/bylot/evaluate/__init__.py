"""Off-policy evaluation: what another policy would have earned and cost, from a decision log.

`docs/log.md` describes logs, targets, estimates and their assumptions.
"""

from bylot.evaluate.agreement import PanelAgreement, measure_agreement
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
    parse_target,
)

__all__ = [
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
    "parse_target",
    "read_log",
    "write_log",
]
