"""The worked examples of CONTRIBUTING.md, applied to a copy of the source."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def find_example(opening: str) -> str:
    """The block of CONTRIBUTING.md that begins with these words."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"```[a-z]+\n({re.escape(opening)}.*?)```", page, re.DOTALL)
    return str(code)


def copy_source(folder: Path) -> Path:
    """A copy of the package in a new folder, which is returned."""
    source = folder / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "bylot", source / "bylot", ignore=ignore)
    return source


def apply_diff(diff: str, folder: Path) -> set[str]:
    """Apply hunks, each at the only position that matches; returns the changed files."""
    changed = set()
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, _, hunks = part.partition("\n")
        text = (folder / name).read_text(encoding="utf-8")
        for hunk in hunks.split("@@\n"):
            lines = hunk.splitlines()
            old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
            new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
            assert text.count(old) == 1, f"{name} has {text.count(old)} places like\n{old}"
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
        changed.add(name)
    return changed


def run_checks(code: str, folder: Path, *paths: Path, **environment: str) -> None:
    """Run Python code in a folder, in a process of its own that imports from these paths first."""
    searched = os.pathsep.join(map(str, (*paths, ROOT / "tests")))
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": searched, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
