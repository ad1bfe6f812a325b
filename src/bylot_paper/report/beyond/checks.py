"""What our policies must show: checks with a stated rule, judged like the paper's claims.

They are kept apart from those: a claim is the paper's, a check is a demand on ourselves.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from bylot.reports.blocks import JudgedClaim
from bylot.reports.style import ENVIRONMENT_LABELS
from bylot_paper.analysis import GroupKey, RunManifest
from bylot_paper.claims import Claim, describe_missing, judge_claim, list_run_differences
from bylot_paper.claims.predicates import ClaimFinding, format_values
from bylot_paper.evidence import Evidence, Untestable, paired_difference, seed_mean
from bylot_paper.policy_settings import ABLATED_PARTS, GUARDED_POLICIES
from bylot_paper.report.beyond.places import (
    ablation_keys,
    comparison_keys,
    mean_regret,
    name_place,
    period_keys,
    pooled_feasible_share,
)

REGRET_SHARE_LIMIT, REGRET_SHARE_AIM = 0.35, 0.15
"""Regret in parts of OMD's: what is asked for, and what is aimed at."""

Judge = Callable[[Evidence], ClaimFinding]

CHECKS: dict[str, Claim] = {}
"""All checks by id, in the order of the report."""


def register_check(name: str, says: str, rule: str) -> Callable[[Judge], Judge]:
    """Register a judge under a stable id."""

    def register(judge: Judge) -> Judge:
        CHECKS[name] = Claim(name, "beyond", says, rule, judge, feasibility=False)
        return judge

    return register


def judge_checks(cells: pl.DataFrame, run: RunManifest) -> list[JudgedClaim]:
    """The verdict on every check."""
    evidence = Evidence(cells, run)
    notes = list_run_differences(run)
    for experiment in ("beyond", "ablation", "periods"):
        notes += describe_missing(evidence.groups, experiment, run)
    return [judge_claim(one, evidence, notes) for one in CHECKS.values()]


def judge_feasible(policy: str, evidence: Evidence) -> ClaimFinding:
    """Runs within all limits, of all and in the worst place."""
    keys = comparison_keys(policy)
    share = pooled_feasible_share(evidence, keys)
    least = min((evidence.feasible(key) for key in keys), key=lambda one: one.value)
    text = f"{share}; least in one place {least.value:.0%}"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "least": least.value})


def judge_regret(policy: str, most: float, evidence: Evidence) -> ClaimFinding:
    """Regret over all places in parts of OMD's."""
    ours, theirs = (
        mean_regret(evidence, comparison_keys(policy)),
        mean_regret(evidence, comparison_keys("omd")),
    )
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, of which there is no part")
    ratio = ours / theirs
    text = f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}"
    return ClaimFinding(ratio <= most, text, {"ratio": ratio, "ours": ours, "omd": theirs})


for name in GUARDED_POLICIES:
    register_check(
        f"{name}-always-feasible",
        f"{name} keeps every limit in every run of the comparison.",
        "All limits are kept, with no tolerance, in every seed of every level and environment.",
    )(partial(judge_feasible, name))
    register_check(
        f"{name}-regret",
        f"{name} loses at most {REGRET_SHARE_LIMIT} of what OMD loses.",
        f"Its regret against the best multinomial policy under exact costs, mean over the eight "
        f"places, is at most {REGRET_SHARE_LIMIT} of OMD's.",
    )(partial(judge_regret, name, REGRET_SHARE_LIMIT))
    register_check(
        f"{name}-regret-aim",
        f"{name} loses at most {REGRET_SHARE_AIM} of what OMD loses.",
        f"As {name}-regret, with {REGRET_SHARE_AIM}.",
    )(partial(judge_regret, name, REGRET_SHARE_AIM))


@register_check(
    "distinct-beats-multinomial",
    "At stress, asking different experts earns more than the best multinomial policy.",
    "At stress, mean regret of distinct against the best multinomial policy that was found is "
    "below 0 by more than two standard errors, in both environments.",
)
def judge_beats_multinomial(evidence: Evidence) -> ClaimFinding:
    """Reward less the optimum, and in how many worlds it is above what can be proved."""
    keys = [
        GroupKey("beyond", environment, "stress", "distinct", 3)
        for environment in ENVIRONMENT_LABELS
    ]
    gains, proved, worlds = {}, 0, 0
    for key in keys:
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[key.environment] = paired_difference(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        worlds += len(reward)
    text = f"reward less the optimum: {format_values(gains)}; above the proved ceiling of all "
    text += f"multinomial policies in {proved} of {worlds} worlds"
    numbers = {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved}
    return ClaimFinding(all(gain.clear for gain in gains.values()), text, numbers)


def judge_periods(policy: str, evidence: Evidence) -> ClaimFinding:
    """Periods outside a limit, of all lengths."""
    keys = period_keys(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad = sum(sum(evidence.values(key, "bad_periods").values()) for key in keys)
    every = sum(sum(evidence.values(key, "periods").values()) for key in keys)
    text = f"{bad:,.0f} of {every:,.0f} periods outside a limit"
    return ClaimFinding(bad == 0, text, {"bad": bad, "periods": every})


for name in GUARDED_POLICIES:
    register_check(
        f"{name}-no-bad-period",
        f"{name} keeps every limit in every period, whatever its length.",
        "No period's mean cost is outside a limit, with no tolerance.",
    )(partial(judge_periods, name))


@register_check(
    "guard-suffices",
    "The guard alone is enough: limits hold whatever other part is missing.",
    "Every run of the ablation that has the guard keeps all limits, with no tolerance.",
)
def judge_guard(evidence: Evidence) -> ClaimFinding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in ABLATED_PARTS if "guard" not in part)]
    keys = [key for name in GUARDED_POLICIES for part in parts for key in ablation_keys(name, part)]
    share = pooled_feasible_share(evidence, keys)
    worst = min(keys, key=lambda key: evidence.feasible(key).value)
    text = (
        f"{share}; least {evidence.feasible(worst).value:.0%} ({worst.policy}, {name_place(worst)})"
    )
    rounds = np.mean([seed_mean(evidence.values(key, "replaced")) for key in keys])
    text += f"; {rounds:.1f} rounds of a run replaced on average"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "replaced": float(rounds)})
