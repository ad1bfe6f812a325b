"""The claims and checks, and the verdicts on them; nothing else decides a verdict.

claims.toml and checks.toml are their tables; predicates and measures are what the rows name.
Verdicts are computed from records, never written by hand.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.policies import POLICIES
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, is_synthetic
from bylot_paper.claims import measures, predicates
from bylot_paper.crowd_sources import TREC_DIGEST
from bylot_paper.grid import (
    FEEDBACK_EXPERIMENT,
    GRIDS,
    PAPER_ROUNDS,
    PERIOD_LENGTHS,
    VARIANT_POLICIES,
    Cell,
    count_rounds,
    list_cells,
    list_feedback_cells,
)

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be tested"
SECTION_GRIDS = {"6.2": ["sweep"], "6.3": ["crowd"], "beyond": ["beyond", "ablation", "periods"]}
"""The experiments that the claims of a section are about."""


class Claim(NamedTuple):
    """A sentence of the paper, paraphrased, or a requirement on our policies, and how to judge it.

    feasibility: the verdict depends on how policies keep limits, so other readings are tried on it
    """

    id: str
    section: str
    says: str
    rule: str
    judge: Callable[[measures.Evidence], predicates.Finding]
    feasibility: bool = False


class JudgedClaim(NamedTuple):
    id: str
    section: str
    claim: str
    rule: str
    measured: str
    numbers: dict[str, Any]
    verdict: str
    caveats: list[str]


def read_claims(path: Path) -> Iterator[Claim]:
    """The rows of a table of claims, those with `each` once for each of its values."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for template in table["claim"]:
        each = template.pop("each", [{}])
        for values in table["each"][each] if isinstance(each, str) else each:
            row = fill_in(template, {**table.get("words", {}), **values})
            arguments = row["test"]
            predicate = getattr(predicates, arguments.pop("predicate"))
            for role in ("measure", "other", "also"):
                if measure := row.get(role):
                    arguments[role] = partial(getattr(measures, measure.pop("name")), **measure)
            if "groups" in row:
                arguments["cases"] = predicates.list_cases(**row["groups"])
            yield Claim(
                row["id"],
                row["section"],
                row["claim"],
                row["rule"],
                partial(predicate, **arguments),
                row.get("feasibility", False),
            )


def fill_in(value: Any, values: Mapping[str, Any]) -> Any:
    """Replace {names} in all texts; a text that is one name becomes the value itself.

    >>> fill_in({"id": "r2-gone-n{N}", "dimensions": ["{N}"], "text": "from {}"}, {"N": 3})
    {'id': 'r2-gone-n3', 'dimensions': [3], 'text': 'from {}'}
    """
    if isinstance(value, dict):
        return {name: fill_in(one, values) for name, one in value.items()}
    if isinstance(value, list):
        return [fill_in(one, values) for one in value]
    for name, one in values.items():
        if value == f"{{{name}}}":
            return one
        value = value.replace(f"{{{name}}}", str(one)) if isinstance(value, str) else value
    return value


CLAIMS, CHECKS = (
    {claim.id: claim for claim in read_claims(Path(__file__).with_name(name))}
    for name in ("claims.toml", "checks.toml")
)
"""All claims by id, in the order of the paper's text; and all checks of our own policies."""


def judge_claim(claim: Claim, evidence: measures.Evidence, caveats: list[str]) -> JudgedClaim:
    """The verdict on one claim, from the records alone."""
    try:
        finding = claim.judge(evidence)
    except measures.Untestable as reason:
        finding, verdict = predicates.Finding(False, str(reason), {}), UNKNOWN
    else:
        verdict = HOLDS if finding.holds else FAILS
    return JudgedClaim(*claim[:4], finding.measured, finding.numbers, verdict, caveats)


def judge_claims(
    cells: pl.DataFrame, run: RunManifest, claims: Mapping[str, Claim] = CLAIMS
) -> list[JudgedClaim]:
    """The verdict on every claim, with how the run differs from the paper's."""
    evidence, differences = measures.Evidence(cells, run), list_run_differences(run)
    caveats = {
        section: sum((describe_missing(evidence.groups, x, run) for x in experiments), differences)
        for section, experiments in SECTION_GRIDS.items()
    }
    return [judge_claim(one, evidence, caveats[one.section.split()[0]]) for one in claims.values()]


def list_run_differences(run: RunManifest) -> list[str]:
    """Other data, or another number of rounds, than the paper's."""
    other = describe_other_data(run)
    notes = [other] if other else []
    if run.get("rounds") != PAPER_ROUNDS:
        played = f"{run['rounds']:,}" if "rounds" in run else "unknown"
        notes.append(f"{played} rounds instead of {PAPER_ROUNDS:,}")
    return notes


def describe_other_data(run: RunManifest) -> str | None:
    """The data that were used instead of the paper's crowd."""
    if is_synthetic(run):
        return "SYNTHETIC crowd: the verdict is about a made-up crowd, not the TREC one"
    data = run.get("data", {})
    if data.get("digest") == TREC_DIGEST:
        return None
    return f"crowd {data.get('name', 'unknown')!r}: the verdict is about it, not about the TREC one"


def list_complete_cells(experiment: str, seeds: int, run: RunManifest) -> list[Cell]:
    """All cells of an experiment, without variants, as far as the rounds of the run allow."""
    if experiment == FEEDBACK_EXPERIMENT:
        return list_feedback_cells(run.get("tables", ()), seeds)
    return [
        cell
        for cell in list_cells(experiment, seeds, int(run.get("rounds", PAPER_ROUNDS)))
        if not (is_synthetic(run) and cell.environment == "synthetic")  # the crowd of the run
    ]


def describe_missing(groups: RecordGroups, experiment: str, run: RunManifest) -> list[str]:
    """What the records lack of an experiment, if they have some of it."""
    one_seed = list_complete_cells(experiment, 1, run)
    wanted = {GroupKey(*(getattr(cell, field) for field in GroupKey._fields)) for cell in one_seed}
    found = [key for key in groups if key in wanted]
    if not found:
        return []
    fewest, most = groups.seeds(experiment)
    notes = []
    played = count_rounds("periods", int(run.get("rounds", PAPER_ROUNDS)))
    long = [f"{period:,}" for period in PERIOD_LENGTHS if 2 * period > played]
    if experiment == "periods" and long:
        lengths = ", ".join(long)
        notes.append(f"no periods of {lengths} rounds, as they do not fit twice into {played:,}")
    if len(found) < len(wanted):
        notes.append(f"INCOMPLETE: {len(found)} of the {len(wanted)} groups of {experiment}")
    if fewest < most:
        notes.append(f"INCOMPLETE: {fewest} to {most} seeds in the groups of {experiment}")
    elif most != GRIDS[experiment].seeds:
        notes.append(f"{most} seeds of {experiment} instead of {GRIDS[experiment].seeds}")
    return notes


class OtherReading(NamedTuple):
    """The verdict on a claim, as usual and under another reading of the paper."""

    variant: str
    claim: str
    usual: str
    other: str
    measured: str


def compare_readings(cells: pl.DataFrame, run: RunManifest) -> list[OtherReading]:
    """The verdicts on every feasibility claim that depends on a variant in the records."""
    if cells.is_empty():
        return []
    usual = judge_by_id(measures.Evidence(cells, run))
    present = cells["policy"].unique().to_list()
    found = []
    for variant in [policy for policy in VARIANT_POLICIES if policy in present]:
        base = POLICIES[variant].name
        others = cells.filter(pl.col("policy") != base)
        evidence = measures.Evidence(
            others.with_columns(pl.col("policy").replace({variant: base})), run
        )
        for claim in CLAIMS.values():
            if claim.feasibility:
                evidence.asked.clear()
                after = judge_claim(claim, evidence, [])
                verdicts = usual[claim.id], after.verdict
                if any(key.policy == base for key in evidence.asked) and UNKNOWN not in verdicts:
                    found.append(OtherReading(variant, claim.id, *verdicts, after.measured))
    return found


def judge_by_id(evidence: measures.Evidence) -> dict[str, str]:
    return {claim.id: judge_claim(claim, evidence, []).verdict for claim in CLAIMS.values()}
