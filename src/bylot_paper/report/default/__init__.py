"""What the default is chosen by: the table of all policies in all worlds, and the verdict."""

from bylot_paper.report.default.section import (
    build_default_section,
    judge_contest,
    make_default_data,
)

__all__ = ["build_default_section", "judge_contest", "make_default_data"]
