"""A claim: a sentence of the paper's results in our words, and the rule that judges it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import polars as pl

from bylot.reports.blocks import FAILS, HOLDS, UNKNOWN, JudgedClaim
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, is_synthetic
from bylot_paper.evidence import Evidence, Untestable
from bylot_paper.grid import (
    DEFAULT_SEED_COUNTS,
    GRIDS,
    PAPER_ROUNDS,
    Cell,
    count_rounds,
    periods,
    spans,
)
from bylot_paper.trec import TREC_DIGEST


class ClaimFinding(NamedTuple):
    """What a rule saw; the verdict follows from `holds` alone."""

    holds: bool
    measured: str
    numbers: dict[str, Any]


class Claim(NamedTuple):
    """`feasibility` marks what depends on how limits are kept: other readings are tried on it."""

    id: str
    section: str
    says: str
    rule: str
    judge: Callable[[Evidence], ClaimFinding]
    feasibility: bool


CLAIMS: dict[str, Claim] = {}
"""All claims by id."""

SECTIONS = (
    "6.2 R1",
    "6.2 R2",
    "6.3 figures",
    "6.3 trade-off",
    "6.3 second caption",
    "6.3 relaxation",
    "6.3 dynamics",
    "6.3 third caption",
    "6.3 regime",
)
"""Parts of the paper's text, in its order."""

Judge = Callable[[Evidence], ClaimFinding]


def register_claim(
    name: str, section: str, says: str, rule: str, feasibility: bool = False
) -> Callable[[Judge], Judge]:
    """Register a judge under a stable id."""

    def register(judge: Judge) -> Judge:
        if name in CLAIMS:
            raise ValueError(f"two claims are called {name!r}; give one another id")
        CLAIMS[name] = Claim(name, section, says, rule, judge, feasibility)
        return judge

    return register


def order_claims() -> list[Claim]:
    """All claims in the order of the paper's text."""
    return sorted(CLAIMS.values(), key=lambda one: SECTIONS.index(one.section))


def judge_claim(one: Claim, evidence: Evidence, notes: list[str]) -> JudgedClaim:
    """The verdict on one claim, from the records alone."""
    try:
        finding = one.judge(evidence)
    except Untestable as reason:
        finding, verdict = ClaimFinding(False, str(reason), {}), UNKNOWN
    else:
        verdict = HOLDS if finding.holds else FAILS
    return JudgedClaim(
        one.id, one.section, one.says, one.rule, finding.measured, finding.numbers, verdict, notes
    )


def judge_claims(cells: pl.DataFrame, run: RunManifest) -> list[JudgedClaim]:
    """The verdict on every claim."""
    evidence = Evidence(cells, run)
    return [judge_claim(one, evidence, find_caveats(evidence, one)) for one in order_claims()]


def find_caveats(evidence: Evidence, one: Claim | None = None) -> list[str]:
    """In what the run differs from the paper's, so that a verdict is not taken for another."""
    notes = list_run_differences(evidence.run)
    for experiment, section in (("sweep", "6.2"), ("crowd", "6.3")):
        if one is None or one.section.startswith(section):
            notes += describe_missing(evidence.groups, experiment, evidence.run)
    return notes


def list_run_differences(run: RunManifest) -> list[str]:
    """Other data, or other rounds, than the paper's."""
    notes = [note for note in [describe_other_data(run)] if note]
    if run.get("rounds") != PAPER_ROUNDS:
        played = f"{run['rounds']:,}" if "rounds" in run else "unknown"
        notes.append(f"{played} rounds instead of {PAPER_ROUNDS:,}")
    return notes


def describe_other_data(run: RunManifest) -> str | None:
    """What was played on instead of the paper's crowd."""
    if is_synthetic(run):
        return "SYNTHETIC crowd: the verdict is about a made-up crowd, not the TREC one"
    data = run.get("data", {})
    if data.get("digest") == TREC_DIGEST:
        return None
    return f"crowd {data.get('name', 'unknown')!r}: the verdict is about it, not about the TREC one"


PERIOD_EXPERIMENTS = {"periods": periods, "spans": spans}
"""Experiments whose cells depend on how many rounds there are."""


def list_complete_cells(experiment: str, seeds: int, run: RunManifest) -> list[Cell]:
    """All cells of an experiment, without variants, as far as the rounds of the run allow."""
    if experiment in PERIOD_EXPERIMENTS:
        return PERIOD_EXPERIMENTS[experiment](seeds, int(run.get("rounds", PAPER_ROUNDS)))
    once = {"synthetic"} if is_synthetic(run) else set()  # the data themselves, played as such
    return [cell for cell in GRIDS[experiment](seeds) if cell.environment not in once]


def list_unplayable_periods(run: RunManifest) -> list[int]:
    """The lengths of periods that do not come up twice in a play of this run."""
    played = count_rounds("periods", int(run.get("rounds", PAPER_ROUNDS)))
    usual = {cell.period or 0 for cell in GRIDS["periods"](1)} - {
        count_rounds("periods", PAPER_ROUNDS)
    }
    return sorted(period for period in usual if 2 * period > played)


def describe_missing(groups: RecordGroups, experiment: str, run: RunManifest) -> list[str]:
    """How far an experiment is from the whole of it, if it was played at all."""
    one_seed = list_complete_cells(experiment, 1, run)
    wanted = {GroupKey(*(getattr(cell, field) for field in GroupKey._fields)) for cell in one_seed}
    found = [key for key in groups if key in wanted]
    if not found:
        return []
    fewest, most = groups.seeds(experiment)
    notes = []
    if experiment == "periods" and list_unplayable_periods(run):
        lengths = ", ".join(f"{period:,}" for period in list_unplayable_periods(run))
        played = count_rounds("periods", int(run["rounds"]))
        notes.append(f"no periods of {lengths} rounds, as they do not fit twice into {played:,}")
    if len(found) < len(wanted):
        notes.append(f"INCOMPLETE: {len(found)} of the {len(wanted)} groups of {experiment}")
    if fewest < most:
        notes.append(f"INCOMPLETE: {fewest} to {most} seeds in the groups of {experiment}")
    elif most != DEFAULT_SEED_COUNTS[experiment]:
        notes.append(f"{most} seeds of {experiment} instead of {DEFAULT_SEED_COUNTS[experiment]}")
    return notes
