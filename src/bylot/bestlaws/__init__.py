"""The best that fixed laws could earn in a world: the laws, their proofs, prices and costs."""

from bylot.bestlaws.find import Found, Law, find
from bylot.bestlaws.render import data, render, rows

__all__ = ["Found", "Law", "data", "find", "render", "rows"]
