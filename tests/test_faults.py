"""Nothing is lost and nothing is done twice if a server under load is killed repeatedly.

A few kills here; `make faults` runs a hundred on each store, and prints the counts.
"""

import os
import time
from pathlib import Path

from faults import run_fault_injection

KILLS = int(os.environ.get("BYLOT_KILLS", "2"))


def test_acknowledged_answers_survive_every_kill(address: str, tmp_path: Path) -> None:
    start = time.monotonic()
    observed, counts = run_fault_injection(address, tmp_path, KILLS, seed=KILLS)
    print(
        f"\n{address.split(':')[0]}: {KILLS} kills in {time.monotonic() - start:.0f} s; "
        f"{counts['decisions']:,} decisions, {counts['rewards']:,} rewards, "
        f"{observed.retries:,} retries; receipts {dict(observed.receipts)}; "
        f"{len(observed.faults)} faults"
    )
    assert observed.faults == []
    assert len(observed.decisions) > 10 * KILLS
    assert observed.retries > 0
