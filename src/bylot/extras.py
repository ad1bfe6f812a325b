"""Packages that only some verbs need: how to get one that is not there, said alike everywhere."""


def install(extra: str) -> str:
    """The remedy for a missing extra of pyproject.toml; bylot is in no registry of packages.

    >>> install("plot")
    "pip install '.[plot]' in the folder of the repository"
    """
    return f"pip install '.[{extra}]' in the folder of the repository"
