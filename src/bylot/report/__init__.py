"""Tables, verdicts and pages, from finished records only: nothing here runs an experiment."""

from bylot.report.evidence import SEEDS
from bylot.report.summary import summary
from bylot.report.write import Made, figures, write

__all__ = ["SEEDS", "Made", "figures", "summary", "write"]
