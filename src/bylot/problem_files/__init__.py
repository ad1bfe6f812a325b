"""Problem files: a pool and its limits in YAML, TOML or JSON, read with the line of every error."""

from bylot.problem_files.experts import Group
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile, read
from bylot.problem_files.yaml_writer import write

__all__ = ["Group", "ProblemFile", "WrittenLimit", "read", "write"]
