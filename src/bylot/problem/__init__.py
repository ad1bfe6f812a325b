"""The problem: experts, costs, limits, and whether the limits can be kept at all."""

from bylot.problem.derived_costs import DerivedCost, Share, share
from bylot.problem.feasibility import Conflict
from bylot.problem.limits import Limit, at_least, at_most
from bylot.problem.problem import Box, Problem

__all__ = [
    "Box",
    "Conflict",
    "DerivedCost",
    "Limit",
    "Problem",
    "Share",
    "at_least",
    "at_most",
    "share",
]
