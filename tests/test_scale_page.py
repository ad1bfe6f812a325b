"""docs/scale.md: its table is that of the stored run, and the simulation runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "cluster" / "shards.py"


def test_the_table_of_the_page_is_that_of_the_stored_run() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "docs" / "scale" / "shards.json").read_text())
    for row in rows:
        line = f"| `{row['policy']}` | {row['routers']} | "
        line += f"{row['reward']:.4f} ± {row['reward_se']:.4f} | "
        line += f"{100 * row['loss']:.2f} ± {100 * row['loss_se']:.2f} % | "
        line += f"{row['missed']} of {row['periods']:,} |"
        assert line in page
    assert {row["seeds"] for row in rows} == {20}


@pytest.mark.slow
def test_the_simulation_runs(tmp_path: Path) -> None:
    options = ("--seeds", "2", "--requests", "10000", "--policy", "distinct")
    found = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads((tmp_path / "shards.json").read_text())
    assert [row["routers"] for row in rows] == [1, 2, 4, 8, 16]
    assert {row["missed"] for row in rows} == {0}
    assert rows[-1]["loss"] > 2 * rows[-1]["loss_se"] > 0  # learning sixteen times costs something
    assert len(found.stdout.splitlines()) == 6
