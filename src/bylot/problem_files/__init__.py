"""Problem files: a pool and its limits in YAML, TOML or JSON; errors name the line."""

from bylot.problem_files.experts import Group
from bylot.problem_files.problem_file import ProblemFile, read, write
from bylot.problem_files.written_limit import WrittenLimit

__all__ = ["Group", "ProblemFile", "WrittenLimit", "read", "write"]
