"""Problem files: a pool and its limits in YAML, TOML or JSON; errors name the line."""

from bylot.problem_files.experts import Group
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile, read, write

__all__ = ["Group", "ProblemFile", "WrittenLimit", "read", "write"]
