"""What a router, `bylot simulate` and `bylot optimum` load: few modules, none of them in vain."""

import subprocess
import sys
from pathlib import Path

import pytest

from bylot_bench.start import TEN_LINES

ADS = Path(__file__).parent.parent / "examples" / "ads"
PROGRAM = """
import sys
{before}
from bylot.cli import main
code = main(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def run_verb(*words: str, before: str = "") -> tuple[int, set[str], str]:
    """Run a verb in a fresh interpreter: exit code, loaded modules and output."""
    program = PROGRAM.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), set(modules), done.stdout + done.stderr


def test_optimum_loads_neither_the_paper_nor_polars_nor_matplotlib() -> None:
    code, modules, _ = run_verb("optimum", str(ADS / "problem.yaml"), "--rounds", "50")
    assert code == 0
    assert not {"polars", "matplotlib", "bylot_paper", "bylot_bench"} & modules
    assert sum(name.partition(".")[0] == "bylot" for name in modules) <= 100


def test_simulate_loads_matplotlib_only_to_draw(tmp_path: Path) -> None:
    options = ("--rounds", "40", "--seeds", "1", "--policy", "distinct", "--out", str(tmp_path))
    code, modules, _ = run_verb("simulate", str(ADS / "problem.yaml"), *options)
    assert code == 0
    assert not {"polars", "bylot_paper", "bylot_bench"} & modules
    # three of them describe gateways, for the options of `bylot serve`
    assert sum(name.partition(".")[0] == "bylot" for name in modules) <= 154


@pytest.mark.parametrize("extra", ["matplotlib", "threadpoolctl"])
def test_a_missing_extra_is_explained(tmp_path: Path, extra: str) -> None:
    options = ("--rounds", "40", "--seeds", "1", "--policy", "random", "--out", str(tmp_path))
    hide = f"sys.modules[{extra!r}] = None"
    code, _, text = run_verb("simulate", str(ADS / "problem.yaml"), *options, before=hide)
    assert code == 1
    assert f"need {extra}" in text
    assert "pip install" in text
    assert "Traceback" not in text


def test_a_warm_start_loads_neither_a_solver_nor_what_compiles() -> None:
    lines = f"{TEN_LINES}\nimport sys\nprint(*sys.modules)"
    for _ in range(2):  # the first may compile and solve
        done = subprocess.run(
            [sys.executable, "-c", lines], capture_output=True, text=True, check=True
        )
    modules = set(done.stdout.splitlines()[-1].split())
    unused = {"scipy.linalg", "scipy.optimize", "scipy.special", "scipy.sparse", "polars"}
    unused |= {"matplotlib", "asyncio", "http.client", "uvicorn", "sqlite3", "numba.np.linalg"}
    assert not unused & modules
    own = {name for name in modules if name.partition(".")[0] == "bylot"}
    parts = ("client", "eventlog", "evaluate", "gateway", "optima", "reports", "server", "store")
    assert not own & {f"bylot.{part}" for part in parts}
    assert len(own) <= 92
