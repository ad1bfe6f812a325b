"""What is past the paper: its own checks, tables and conclusions, apart from the paper's."""

from bylot.report.beyond.checks import CHECKS, judge_checks
from bylot.report.beyond.section import CAPTIONS, counted_checks, section

__all__ = ["CAPTIONS", "CHECKS", "counted_checks", "judge_checks", "section"]
