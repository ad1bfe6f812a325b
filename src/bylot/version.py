"""The version of the package; owns nothing else."""

__version__ = "0.1.0"
