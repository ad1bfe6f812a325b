"""The claims of the paper's results, and the verdicts on them; nothing else decides a verdict.

claims.toml is the table of claims; predicates and measures are what its rows name. Verdicts are
computed from records, never written by hand.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bylot.reports.blocks import FAILS, HOLDS, UNKNOWN, JudgedClaim
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, is_synthetic
from bylot_paper.claims import measures, predicates
from bylot_paper.claims.predicates import ClaimFinding, list_cases
from bylot_paper.evidence import Evidence, Untestable
from bylot_paper.grid import (
    GRIDS,
    PAPER_ROUNDS,
    Cell,
    count_rounds,
    list_cells,
)
from bylot_paper.trec import TREC_DIGEST


class Claim(NamedTuple):
    """A sentence of the paper in our words, and the rule that judges it.

    feasibility: the verdict depends on how policies keep limits, so other readings are tried on it
    """

    id: str
    section: str
    says: str
    rule: str
    judge: Callable[[Evidence], ClaimFinding]
    feasibility: bool = False


def read_claims(path: Path) -> Iterator[Claim]:
    """The rows of a table of claims, those with `each` once for each of its values."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for row in table["claim"]:
        each = row.pop("each", [{}])
        for values in table["each"][each] if isinstance(each, str) else each:
            yield claim_from_row(fill_in(row, {**table["words"], **values}))


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


def claim_from_row(row: dict[str, Any]) -> Claim:
    """Look up the predicate and the measures that a row names."""
    arguments = dict(row["test"])
    predicate = getattr(predicates, arguments.pop("predicate"))
    for role in ("measure", "other", "also"):
        if role in row:
            measure = dict(row[role])
            arguments[role] = partial(getattr(measures, measure.pop("name")), **measure)
    judge = partial(predicate, cases=list_cases(**row["groups"]), **arguments)
    feasibility = row.get("feasibility", False)
    return Claim(row["id"], row["section"], row["claim"], row["rule"], judge, feasibility)


CLAIMS = {claim.id: claim for claim in read_claims(Path(__file__).with_name("claims.toml"))}
"""All claims by id, in the order of the paper's text."""


def judge_claim(claim: Claim, evidence: Evidence, caveats: list[str]) -> JudgedClaim:
    """The verdict on one claim, from the records alone."""
    try:
        finding = claim.judge(evidence)
    except Untestable as reason:
        finding, verdict = ClaimFinding(False, str(reason), {}), UNKNOWN
    else:
        verdict = HOLDS if finding.holds else FAILS
    words = (claim.id, claim.section, claim.says, claim.rule)
    return JudgedClaim(*words, finding.measured, finding.numbers, verdict, caveats)


def judge_claims(cells: pl.DataFrame, run: RunManifest) -> list[JudgedClaim]:
    """The verdict on every claim, with how the run differs from the paper's."""
    evidence = Evidence(cells, run)
    differences = list_run_differences(run)
    caveats = {
        section: differences + describe_missing(evidence.groups, experiment, run)
        for section, experiment in (("6.2", "sweep"), ("6.3", "crowd"))
    }
    return [judge_claim(one, evidence, caveats[one.section[:3]]) for one in CLAIMS.values()]


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
    cells = list_cells(experiment, seeds, int(run.get("rounds", PAPER_ROUNDS)))
    once = {"synthetic"} if is_synthetic(run) else set()  # the data themselves, played as such
    return [cell for cell in cells if cell.environment not in once]


def list_unplayable_periods(run: RunManifest) -> list[int]:
    """The period lengths that do not fit twice into a run."""
    played, whole = (
        count_rounds("periods", int(rounds))
        for rounds in (run.get("rounds", PAPER_ROUNDS), PAPER_ROUNDS)
    )
    usual = {cell.period or 0 for cell in list_cells("periods", 1)} - {whole}
    return sorted(period for period in usual if 2 * period > played)


def describe_missing(groups: RecordGroups, experiment: str, run: RunManifest) -> list[str]:
    """What the records lack of an experiment, if they have some of it."""
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
    elif most != GRIDS[experiment].seeds:
        notes.append(f"{most} seeds of {experiment} instead of {GRIDS[experiment].seeds}")
    return notes


READING_VARIANTS = {
    "cbwk-instant": ("cbwk", "CBwK's dual moves on the cost of the round, not the running mean"),
    "ts-bwk-instant": ("ts-bwk", "TS-BwK's dual moves on the cost of the round, not the mean"),
    "omd-sum": ("omd", "OMD adds the gradients of a batch instead of averaging them"),
    "omd-frozen": ("omd", "OMD's dual is constant within a batch, as its lemma requires"),
    "omd-plain": ("omd", "OMD without batches and baseline, as in the theorems"),
}
"""Other readings of the paper: the policy that each replaces, and the difference."""


class Reading(NamedTuple):
    """The verdict on a claim, as usual and under another reading of the paper."""

    variant: str
    claim: str
    usual: str
    other: str
    measured: str


def compare_readings(cells: pl.DataFrame, run: RunManifest) -> list[Reading]:
    """The verdicts on every feasibility claim that depends on a variant in the records."""
    if cells.is_empty():
        return []
    usual = judge_by_id(Evidence(cells, run))
    present = set(cells["policy"].unique().to_list())
    found = []
    for variant in [one for one in READING_VARIANTS if one in present]:
        base = READING_VARIANTS[variant][0]
        others = cells.filter(pl.col("policy") != base)
        evidence = Evidence(others.with_columns(pl.col("policy").replace({variant: base})), run)
        for claim in CLAIMS.values():
            if claim.feasibility:
                evidence.asked.clear()
                before, after = usual[claim.id], judge_claim(claim, evidence, [])
                rests = any(key.policy == base for key in evidence.asked)
                if rests and UNKNOWN not in (before, after.verdict):
                    found.append(Reading(variant, claim.id, before, after.verdict, after.measured))
    return found


def find_threshold_changes(cells: pl.DataFrame, run: RunManifest, near: float) -> list[str]:
    """The claims whose verdict would change with another threshold for near-optimal."""
    usual, other = judge_by_id(Evidence(cells, run)), judge_by_id(Evidence(cells, run, near))
    return [name for name, verdict in usual.items() if verdict != other[name]]


def judge_by_id(evidence: Evidence) -> dict[str, str]:
    """The verdict on every claim."""
    return {claim.id: judge_claim(claim, evidence, []).verdict for claim in CLAIMS.values()}
