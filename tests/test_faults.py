"""Nothing is lost, nothing is done twice: a server under load, killed again and again.

A few kills here; `make faults` asks for a hundred on each store, and shows what was counted.
"""

import os
import time
from pathlib import Path

from faults import run

KILLS = int(os.environ.get("BYLOT_KILLS", "2"))


def test_what_was_acknowledged_outlives_every_kill(address: str, tmp_path: Path) -> None:
    began = time.monotonic()
    seen, counts = run(address, tmp_path, KILLS, seed=KILLS)
    print(
        f"\n{address.split(':')[0]}: {KILLS} kills in {time.monotonic() - began:.0f} s; "
        f"{counts['decisions']:,} decisions, {counts['rewards']:,} rewards, "
        f"{seen.retries:,} retries; receipts {dict(seen.receipts)}; {len(seen.faults)} faults"
    )
    assert seen.faults == []
    assert len(seen.decisions) > 10 * KILLS
    assert seen.retries > 0
