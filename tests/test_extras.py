"""Hints about packages that are not there: one sentence, and one that works."""

import re
import tomllib
from pathlib import Path

import bylot
from bylot.errors import install_command

SOURCE = Path(bylot.__file__).parent
PROJECT = SOURCE.parents[1] / "pyproject.toml"


def asked() -> dict[str, list[str]]:
    """The files of the package that hint at each extra."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for extra in re.findall(r"install\([\"'](\w+)[\"']\)", path.read_text(encoding="utf-8")):
            found.setdefault(extra, []).append(path.name)
    return found


def test_every_extra_that_is_hinted_at_is_one_of_the_project() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    served = {"client", "serve", "postgres"}
    assert set(asked()) == {"plot", "reproduce", "ray", "bench"} | served
    assert set(asked()) <= set(extras)


def test_the_hint_is_written_in_one_place_only() -> None:
    spelt = [
        path.name
        for path in SOURCE.rglob("*.py")
        if "pip install" in path.read_text(encoding="utf-8")
    ]
    assert spelt == ["extras.py"]


def test_the_hint_names_a_folder_and_no_package_that_a_registry_would_be_asked_for() -> None:
    assert install_command("ray").startswith("pip install '.[ray]' in the folder")
