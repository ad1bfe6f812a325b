"""What the default is chosen by: the table of all policies in all worlds, and the verdict."""

from bylot.report.default.section import numbers, section

__all__ = ["numbers", "section"]
