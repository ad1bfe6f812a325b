"""What our own policies must show: checks with a stated rule, judged like the paper's claims."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from bylot.reports.blocks import JudgedClaim
from bylot_paper.analysis import GroupKey, RunManifest
from bylot_paper.claims import Claim, describe_missing, judge_claim, list_run_differences
from bylot_paper.claims.predicates import ClaimFinding, format_values
from bylot_paper.evidence import Evidence, RunShare, Untestable, paired_difference, seed_mean
from bylot_paper.plots.panels import ENVIRONMENT_LABELS
from bylot_paper.policy_settings import ABLATED_PARTS, GUARDED_POLICIES
from bylot_paper.report.beyond_tables import ablation_keys, comparison_keys, list_period_keys

REGRET_SHARE_LIMIT, REGRET_SHARE_AIM = 0.35, 0.15
"""Regret relative to OMD's: what is required, and what is aimed at."""


def pool_shares(evidence: Evidence, keys: list[GroupKey]) -> RunShare:
    """Feasible runs of several groups together."""
    shares = [evidence.feasible(key) for key in keys]
    return RunShare(sum(one.kept for one in shares), sum(one.runs for one in shares))


def judge_feasible(policy: str, evidence: Evidence) -> ClaimFinding:
    """Runs within all limits, of all and in the worst case."""
    keys = comparison_keys(policy)
    share, least = pool_shares(evidence, keys), min(evidence.feasible(key).value for key in keys)
    text = f"{share}; least in one case {least:.0%}"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "least": least})


def judge_regret(policy: str, limit: float, evidence: Evidence) -> ClaimFinding:
    """Regret over all cases relative to OMD's."""
    ours, theirs = (
        sum(seed_mean(evidence.values(key, "regret_true")) for key in keys) / len(keys)
        for keys in (comparison_keys(policy), comparison_keys("omd"))
    )
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, so no ratio to it exists")
    ratio = ours / theirs
    text = f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}"
    return ClaimFinding(ratio <= limit, text, {"ratio": ratio, "ours": ours, "omd": theirs})


def judge_beats_multinomial(evidence: Evidence) -> ClaimFinding:
    """Reward minus the optimum, and in how many runs it is above the proved bound."""
    gains, proved, runs = {}, 0, 0
    for environment in ENVIRONMENT_LABELS:
        key = GroupKey("beyond", environment, "stress", "distinct", 3)
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[environment] = paired_difference(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        runs += len(reward)
    text = f"reward minus the optimum: {format_values(gains)}; above the proved upper bound of all "
    text += f"multinomial policies in {proved} of {runs} runs"
    numbers = {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved}
    return ClaimFinding(all(gain.clear for gain in gains.values()), text, numbers)


def judge_periods(policy: str, evidence: Evidence) -> ClaimFinding:
    """Periods outside a limit, of all lengths."""
    keys = list_period_keys(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad, total = (
        sum(sum(evidence.values(key, column).values()) for key in keys)
        for column in ("bad_periods", "periods")
    )
    text = f"{bad:,.0f} of {total:,.0f} periods outside a limit"
    return ClaimFinding(bad == 0, text, {"bad": bad, "periods": total})


def judge_guard(evidence: Evidence) -> ClaimFinding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in ABLATED_PARTS if "guard" not in part)]
    keys = [key for name in GUARDED_POLICIES for part in parts for key in ablation_keys(name, part)]
    share = pool_shares(evidence, keys)
    worst = min(keys, key=lambda key: evidence.feasible(key).value)
    text = f"{share}; least {evidence.feasible(worst).value:.0%} "
    text += f"({worst.policy}, {worst.level} {worst.environment})"
    rounds = float(np.mean([seed_mean(evidence.values(key, "replaced")) for key in keys]))
    text += f"; {rounds:.1f} rounds of a run replaced on average"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "replaced": rounds})


def list_checks() -> Iterator[Claim]:
    """All checks, in the order of the report."""
    for name in GUARDED_POLICIES:
        yield Claim(
            f"{name}-always-feasible",
            "beyond",
            f"{name} keeps every limit in every run of the comparison.",
            "All limits are kept, with no tolerance, in every seed of every level and environment.",
            partial(judge_feasible, name),
        )
        for suffix, limit, rule in (
            (
                "regret",
                REGRET_SHARE_LIMIT,
                f"Its regret against the best multinomial policy under exact costs, mean over the "
                f"eight cases, is at most {REGRET_SHARE_LIMIT} of OMD's.",
            ),
            ("regret-aim", REGRET_SHARE_AIM, f"As {name}-regret, with {REGRET_SHARE_AIM}."),
        ):
            says = f"{name} loses at most {limit} of what OMD loses."
            judge = partial(judge_regret, name, limit)
            yield Claim(f"{name}-{suffix}", "beyond", says, rule, judge)
    yield Claim(
        "distinct-beats-multinomial",
        "beyond",
        "At stress, asking different experts earns more than the best multinomial policy.",
        "At stress, mean regret of distinct against the best multinomial policy that was found is "
        "below 0 by more than two standard errors, in both environments.",
        judge_beats_multinomial,
    )
    for name in GUARDED_POLICIES:
        yield Claim(
            f"{name}-no-bad-period",
            "beyond",
            f"{name} keeps every limit in every period, whatever its length.",
            "No period's mean cost is outside a limit, with no tolerance.",
            partial(judge_periods, name),
        )
    yield Claim(
        "guard-suffices",
        "beyond",
        "The guard alone is enough: limits hold whatever other part is missing.",
        "Every run of the ablation that has the guard keeps all limits, with no tolerance.",
        judge_guard,
    )


CHECKS = {check.id: check for check in list_checks()}


def judge_checks(cells: pl.DataFrame, run: RunManifest) -> list[JudgedClaim]:
    """The verdict on every check."""
    evidence = Evidence(cells, run)
    notes = list_run_differences(run)
    for experiment in ("beyond", "ablation", "periods"):
        notes += describe_missing(evidence.groups, experiment, run)
    return [judge_claim(one, evidence, notes) for one in CHECKS.values()]
