"""Off-policy evaluation: what another policy would have earned and cost, from a decision log.

`docs/log.md` describes logs, targets, estimates and their assumptions.
"""

from bylot.evaluate.entries import LogEntry, entries_from_trace, entry_from_decision
from bylot.evaluate.estimators import RewardEstimate
from bylot.evaluate.log import DecisionLog, log_from_entries, read_log, write_log
from bylot.evaluate.past_log import PastLog, select_rounds
from bylot.evaluate.result import Evaluation, PanelAgreement, evaluate_target, measure_agreement
from bylot.evaluate.targets import (
    EvaluationTarget,
    make_fixed_size_target,
    make_iid_target,
    make_optimum_target,
    make_panel_target,
    make_router_target,
    make_uniform_target,
)

__all__ = [
    "DecisionLog",
    "Evaluation",
    "EvaluationTarget",
    "LogEntry",
    "PanelAgreement",
    "PastLog",
    "RewardEstimate",
    "entries_from_trace",
    "entry_from_decision",
    "evaluate_target",
    "log_from_entries",
    "make_fixed_size_target",
    "make_iid_target",
    "make_optimum_target",
    "make_panel_target",
    "make_router_target",
    "make_uniform_target",
    "measure_agreement",
    "read_log",
    "select_rounds",
    "write_log",
]
