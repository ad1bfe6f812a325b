"""Limits of every kind beside a ledger in plain Python, after every one of many random commands."""

import os
from pathlib import Path
from typing import Any

import pytest

from limit_fuzzer import SETUPS, LimitFuzzer
from scripted_routers import ROUTER_KINDS

SEEDS = int(os.environ.get("BYLOT_LEDGER_SEEDS", "3"))
STEPS = 250


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_the_status_of_limits_is_that_of_the_ledger(kind: Any, setup: str, tmp_path: Path) -> None:
    missed = 0
    for seed in range(SEEDS):
        fuzzer = LimitFuzzer(kind, SETUPS[setup], seed, tmp_path / "router.bylot")
        for _ in range(STEPS):
            fuzzer.step()
            fuzzer.check()
        fuzzer.router.check()
        missed += fuzzer.counts["missed"]
        assert fuzzer.counts["decided"] > 30, "the test would pass if nothing were asked"
        assert fuzzer.counts["settled"] > 15, "the test would pass if nothing were billed"
        assert fuzzer.counts["edited"] > 0, "the test would pass without an edit"
    if not SETUPS[setup].has_largest:
        assert missed > 0, "the test would pass if no window were judged"
