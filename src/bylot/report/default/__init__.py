"""What the default is chosen by: the table of all policies in all worlds, and the verdict."""

from bylot.report.default.section import judge, numbers, section

__all__ = ["judge", "numbers", "section"]
