"""What a process runs, as far as results depend on it: must be equal on all machines of a run."""

import functools
import platform
from collections.abc import Callable
from importlib.metadata import version

from bylot.version import __version__


def identity(check: Callable[[], str]) -> dict[str, str]:
    """Versions by name, and whatever `check` says, as the code.

    >>> identity(lambda: "4f1d")["code"]
    '4f1d'
    """
    return {**versions(), "code": check()}


@functools.cache
def versions() -> dict[str, str]:
    """Of this process; they are files to read, so once is enough."""
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"Python": platform.python_version(), "bylot": __version__, **packages}


def differences(here: dict[str, str], there: dict[str, str]) -> list[str]:
    """What is not the same, as text.

    >>> differences({"Python": "3.11.7", "bylot": "1.0"}, {"Python": "3.11.7", "bylot": "0.9"})
    ['bylot 0.9 (here 1.0)']
    """
    return [
        f"{name} {there.get(name, 'unknown')} (here {mine})"
        for name, mine in here.items()
        if there.get(name) != mine
    ]
