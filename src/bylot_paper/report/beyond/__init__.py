"""What is past the paper: its own checks, tables and conclusions, apart from the paper's."""

from bylot_paper.report.beyond.checks import CHECKS, judge_checks
from bylot_paper.report.beyond.section import BEYOND_CAPTIONS, build_beyond_section, count_checks

__all__ = ["BEYOND_CAPTIONS", "CHECKS", "build_beyond_section", "count_checks", "judge_checks"]
