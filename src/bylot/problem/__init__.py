"""The problem: experts, costs, limits, and whether the limits can be kept at all."""

from bylot.problem.feasibility import Conflict
from bylot.problem.limits import DerivedCost, Limit, Share, at_least, at_most, share
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
