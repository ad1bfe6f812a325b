"""Problem files: a pool and its limits in YAML, TOML or JSON, read with the line of every error."""

from bylot.files.groups import Group
from bylot.files.problem_file import ProblemFile, read
from bylot.files.promises import Promise
from bylot.files.write import write

__all__ = ["Group", "ProblemFile", "Promise", "read", "write"]
