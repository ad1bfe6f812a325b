"""Build sdist and wheel, compare the wheel with one built from the sdist, and test it in a clean
environment: `make package`. Packages come from pip's cache if they are there.
"""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("bylot", "bylot_paper")
IN_SDIST = (
    *("Makefile", "CHANGELOG.md", "constraints.txt", "tests/conftest.py", "docs/index.md"),
    "src/bylot_bench/__init__.py",
)


def run(*words: object, folder: Path = ROOT, **variables: str) -> str:
    """Run a command without the Python paths of this checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}")
    return done.stdout


def make_environment(folder: Path, *requirements: str) -> Path:
    """The Python of a new environment with some packages; pip is that of this environment."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "install")
    run(*pip, "--constraint", ROOT / "constraints.txt", *requirements)
    return python


def build(python: Path, target: str, source: Path, out: Path) -> Path:
    """The sdist or wheel of a source tree."""
    run(python, "-m", "hatchling", "build", "--target", target, "--directory", out, folder=source)
    (file,) = out.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return file


def read_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_contents(sdist: Path, wheel: Path) -> None:
    """Every file of the packages is in the wheel and in the sdist, nothing else is in the wheel."""
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for package in PACKAGES
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = {name for name in read_wheel(wheel) if ".dist-info/" not in name}
    assert names == sources, names ^ sources
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    missing = ({f"src/{name}" for name in sources} | set(IN_SDIST)) - packed
    assert not missing, missing


def main(out: Path) -> None:
    tools = make_environment(out / "tools", "hatchling")
    sdist = build(tools, "sdist", ROOT, out / "dist")
    wheel = build(tools, "wheel", ROOT, out / "dist")
    check_contents(sdist, wheel)
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "unpacked", filter="data")
    (unpacked,) = (out / "unpacked").iterdir()
    again = build(tools, "wheel", unpacked, out / "again")
    assert read_wheel(again) == read_wheel(wheel), "the sdist gives another wheel"
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes, {wheel.name}: {wheel.stat().st_size:,}")
    python = make_environment(out / "clean", f"{wheel}[serve,plot]")
    print(run(python, ROOT / "tests" / "package_smoke.py", folder=out), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
