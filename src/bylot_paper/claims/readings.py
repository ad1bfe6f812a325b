"""Other readings of the paper: would a verdict on feasibility change if they were the right one?"""

from typing import NamedTuple

import polars as pl

from bylot.reports.blocks import UNKNOWN
from bylot_paper.analysis import RunManifest
from bylot_paper.claims.judging import judge_claim, order_claims
from bylot_paper.evidence import Evidence

READING_VARIANTS = {
    "cbwk-instant": ("cbwk", "CBwK's dual moves on the cost of the round, not the running mean"),
    "ts-bwk-instant": ("ts-bwk", "TS-BwK's dual moves on the cost of the round, not the mean"),
    "omd-sum": ("omd", "OMD adds the gradients of a batch instead of averaging them"),
    "omd-frozen": ("omd", "OMD's dual stands still within a batch, as its lemma needs"),
    "omd-plain": ("omd", "OMD without batches and baseline, as the theorems have it"),
}
"""Labels of variants: whose place each takes, and what differs."""


class Reading(NamedTuple):
    """The verdict on a claim, as usual and under another reading."""

    variant: str
    claim: str
    usual: str
    other: str
    measured: str

    @property
    def changes(self) -> bool:
        """Does the verdict depend on the reading?"""
        return self.usual != self.other


def compare_readings(cells: pl.DataFrame, run: RunManifest) -> list[Reading]:
    """Every feasibility claim on which a variant that was run has a say."""
    if cells.is_empty():
        return []
    present = set(cells["policy"].unique().to_list())
    usual = judge_by_id(Evidence(cells, run))
    return [
        reading
        for variant in READING_VARIANTS
        if variant in present
        for reading in judge_variant(
            variant, usual, Evidence(substitute_variant(cells, variant), run)
        )
    ]


def find_threshold_changes(cells: pl.DataFrame, run: RunManifest, near: float) -> list[str]:
    """The claims whose verdict would be another if near-optimal meant another part of the best."""
    usual, other = judge_by_id(Evidence(cells, run)), judge_by_id(Evidence(cells, run, near))
    return [name for name, verdict in usual.items() if verdict != other[name]]


def judge_by_id(evidence: Evidence) -> dict[str, str]:
    """On every claim, by its id."""
    return {claim.id: judge_claim(claim, evidence, []).verdict for claim in order_claims()}


def substitute_variant(cells: pl.DataFrame, variant: str) -> pl.DataFrame:
    """The records with a variant in the place of the policy that it reads differently."""
    base = READING_VARIANTS[variant][0]
    others = cells.filter(pl.col("policy") != base)
    return others.with_columns(pl.col("policy").replace({variant: base}))


def judge_variant(variant: str, usual: dict[str, str], other: Evidence) -> list[Reading]:
    """The feasibility claims that rest on the variant, as far as it was run."""
    base, found = READING_VARIANTS[variant][0], []
    for claim in order_claims():
        if claim.feasibility:
            other.asked.clear()
            before, after = usual[claim.id], judge_claim(claim, other, [])
            if UNKNOWN not in (before, after.verdict) and any(
                key.policy == base for key in other.asked
            ):
                found.append(Reading(variant, claim.id, before, after.verdict, after.measured))
    return found
