"""Tables, verdicts and pages, from finished records only: nothing here runs an experiment."""

from bylot_paper.evidence import MIN_VERDICT_SEEDS
from bylot_paper.report.summary import summarise_run
from bylot_paper.report.write import WrittenReport, draw_figures, write_report

__all__ = ["MIN_VERDICT_SEEDS", "WrittenReport", "draw_figures", "summarise_run", "write_report"]
