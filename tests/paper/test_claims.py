"""Verdicts: every claim holds on some made-up records, fails on others, and can be untestable."""

import json
import math
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import norm

from bylot_paper.analysis import wilson_interval
from bylot_paper.claims.judge import (
    CLAIMS,
    FAILS,
    HOLDS,
    UNKNOWN,
    JudgedClaim,
    compare_readings,
    judge_claims,
)
from bylot_paper.claims.measures import PairedDifference, Untestable, paired_difference
from bylot_paper.crowd_sources import TREC_DIGEST
from paper_records import AS_WRITTEN, CONTRARY, SHAKEN, make_paper_records

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper" / "msr.tex"
STORIES = {"as written": AS_WRITTEN, "rivals shaken": SHAKEN, "contrary": CONTRARY}
TRUE_IN = {
    "omd-more-robust": "rivals shaken",  # by the paper's own numbers CBwK gains
    "tight-tsbwk-fewer-regime": "rivals shaken",  # 95% and 85% of 20 runs are too near
    "regime-tsbwk-less-feasible": "rivals shaken",
}
FALSE_IN = {"tight-ts-bwk-regime": "rivals shaken"}  # 20 of 20 do not refute 85%


@cache
def judge_story(story: str) -> dict[str, JudgedClaim]:
    """The verdicts on all claims, by id, on the records of a story."""
    records = make_paper_records(STORIES[story])
    return {row.id: row for row in judge_claims(records.cells, records.run)}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_holds_on_records_that_support_it(claim: str) -> None:
    row = judge_story(TRUE_IN.get(claim, "as written"))[claim]
    assert row.verdict == HOLDS, row.measured


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_fails_on_records_that_contradict_it(claim: str) -> None:
    row = judge_story(FALSE_IN.get(claim, "contrary"))[claim]
    assert row.verdict == FAILS, row.measured


def test_without_records_every_verdict_is_unknown() -> None:
    records = make_paper_records(AS_WRITTEN)
    for cells in (records.cells.clear(), pl.DataFrame()):
        for row in judge_claims(cells, records.run):
            assert row.verdict == UNKNOWN
            assert "no records of" in row.measured


def test_two_seeds_are_too_few_for_any_verdict() -> None:
    records = make_paper_records(AS_WRITTEN, seeds=2)
    rows = judge_claims(records.cells, records.run)
    assert {row.verdict for row in rows} == {UNKNOWN}
    assert all(re.match("2 seeds of .*; a verdict needs 3$", row.measured) for row in rows)


@pytest.mark.parametrize("policy", ["omd", "ts-bwk", "random"])
def test_only_claims_on_a_missing_policy_are_unknown(policy: str) -> None:
    records = make_paper_records(AS_WRITTEN)
    rest = records.cells.filter((pl.col("policy") != policy) | (pl.col("experiment") == "sweep"))
    rows = {row.id: row for row in judge_claims(rest, records.run)}
    assert rows["only-omd-always-tight"].verdict == UNKNOWN
    assert f"of {policy} in crowd (" in rows["only-omd-always-tight"].measured
    assert rows["tight-cbwk-regime"].verdict == HOLDS
    assert rows["r2-gone-n3"].verdict == HOLDS


def test_a_claim_on_an_update_after_the_end_of_the_run_is_unknown() -> None:
    records = make_paper_records(AS_WRITTEN)
    curves = [name for name in records.cells.columns if name.startswith("curve_")]
    short = records.cells.with_columns(pl.col(name).list.head(200) for name in curves)
    rows = {row.id: row for row in judge_claims(short, {**records.run, "rounds": 2_000})}
    assert rows["r2-gone-n3"].verdict == UNKNOWN
    assert "ends at n = 200" in rows["r2-gone-n3"].measured
    assert rows["r1-plateau-true"].verdict == HOLDS
    assert "2,000 rounds instead of 10,000" in rows["r1-plateau-true"].caveats


def test_a_verdict_on_a_synthetic_crowd_says_so() -> None:
    made_up = judge_story("as written")["omd-near-optimal"]
    assert any("SYNTHETIC" in note for note in made_up.caveats)
    records = make_paper_records(
        AS_WRITTEN, data={"name": "trec", "digest": TREC_DIGEST, "synthetic": False}
    )
    rows = judge_claims(records.cells, records.run)
    assert all(row.caveats == [] for row in rows)


def test_a_verdict_on_other_data_says_so() -> None:
    records = make_paper_records(
        AS_WRITTEN, data={"name": "trec", "digest": "another", "synthetic": False}
    )
    rows = judge_claims(records.cells, records.run)
    assert all("crowd 'trec': the verdict is about it" in row.caveats[0] for row in rows)


def test_a_verdict_on_part_of_an_experiment_says_so() -> None:
    records = make_paper_records(
        AS_WRITTEN, data={"name": "trec", "digest": TREC_DIGEST, "synthetic": False}
    )
    regime, late = pl.col("environment") == "regime", pl.col("seed") >= 14
    for cells, note in [
        (
            records.cells.filter(~(regime & late)),
            "INCOMPLETE: 14 to 20 seeds in the groups of crowd",
        ),
        (records.cells.filter(~regime), "INCOMPLETE: 32 of the 64 groups of crowd"),
    ]:
        rows = {row.id: row for row in judge_claims(cells, records.run)}
        assert rows["omd-keeps-cap"].caveats == [note]
        assert rows["r1-plateau-true"].caveats == []  # of the other experiment


def test_a_verdict_has_the_claim_the_rule_and_the_measurement() -> None:
    for row in judge_story("as written").values():
        assert re.fullmatch(r"[a-z0-9-]+", row.id)
        assert row.section.startswith(("6.2", "6.3"))
        assert all(len(text) > 10 for text in (row.claim, row.rule, row.measured))
        assert json.dumps(row.numbers) != "{}"


def test_no_sentence_is_copied_from_the_paper() -> None:
    if not PAPER.exists():
        pytest.skip("the paper is not beside the repository")
    paper = " ".join(split_words(PAPER.read_text()))
    for claim in CLAIMS.values():
        for text in (claim.says, claim.rule):
            claim_words = split_words(text)
            for start in range(len(claim_words) - 7):
                assert " ".join(claim_words[start : start + 8]) not in paper


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words without markup, which could hide a copy."""
    return re.findall(r"[a-z0-9]+", text.lower())


def test_a_variant_that_changes_a_verdict_is_reported() -> None:
    records = make_paper_records(AS_WRITTEN)
    instant = records.cells.filter(
        (pl.col("policy") == "ts-bwk") & (pl.col("level") == "tight")
    ).with_columns(
        pl.lit("ts-bwk-instant").alias("policy"),
        pl.lit(0.2).alias("outside"),
        pl.col("cell").str.replace("ts-bwk", "ts-bwk-instant"),
    )
    assert compare_readings(records.cells, records.run) == []
    found = {
        one.claim: one for one in compare_readings(pl.concat([records.cells, instant]), records.run)
    }
    assert found["tight-ts-bwk-stochastic"].usual == HOLDS
    assert found["tight-ts-bwk-stochastic"].other == FAILS
    assert found["tight-tsbwk-fewer"].other == HOLDS
    assert "tight-omd-regime" not in found  # it does not depend on the variant
    assert "relaxing-helps-feasibility" not in found  # the variant was not run at all levels


@pytest.mark.parametrize(("count", "runs"), [(0, 20), (8, 20), (19, 20), (20, 20), (1, 3)])
def test_the_interval_is_the_wilson_interval(count: int, runs: int) -> None:
    share, z = count / runs, norm.ppf(0.975)
    centre, scale = share + z * z / (2 * runs), 1 + z * z / runs
    half_width = z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    ends = (centre - half_width) / scale, (centre + half_width) / scale
    assert wilson_interval(count, runs) == pytest.approx(ends, abs=1e-12)


def test_the_interval_without_runs_is_zero_to_one() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(20, 20)[1] == 1.0  # not a rounding error less: 100% must be inside


def test_a_difference_is_clear_only_beyond_two_standard_errors() -> None:
    assert paired_difference({0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.0, 1: 0.0, 2: 0.0}).clear
    assert not paired_difference({0: 1.0, 1: 0.0, 2: 4.0}, {0: 0.0, 1: 0.0, 2: 0.0}).clear
    assert not PairedDifference(0.0, 0.0).clear
    with pytest.raises(Untestable, match="only 1 seeds are in both"):
        paired_difference({0: 1.0, 1: 2.0, 2: 3.0}, {2: 1.0, 3: 1.0, 4: 1.0})
