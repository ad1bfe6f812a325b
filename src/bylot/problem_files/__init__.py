"""Problem files: a pool and its limits in YAML, TOML or JSON; errors name the line."""

from bylot.problem_files.experts import Group
from bylot.problem_files.problem_file import ProblemFile, WrittenLimit, read, write

__all__ = ["Group", "ProblemFile", "WrittenLimit", "read", "write"]
