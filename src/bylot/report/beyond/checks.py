"""What our policies must show: checks with a stated rule, judged like the paper's claims.

They are kept apart from those: a claim is the paper's, a check is a demand on ourselves.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from bylot.experiments import GUARDED, PARTS
from bylot.plots.groups import Key, Run
from bylot.plots.style import ENVIRONMENTS
from bylot.report.beyond.places import ablated, compared, feasible, in_periods, place, regret
from bylot.report.claims.panel import always, listed
from bylot.report.claims.registry import Claim, Finding, Judge, Row, judged, missing, unlike
from bylot.report.evidence import Evidence, Untestable, mean, paired

MOST, AIM = 0.35, 0.15
"""Regret in parts of OMD's: what is asked for, and what is aimed at."""

CHECKS: dict[str, Claim] = {}
"""All checks by id, in the order of the report."""


def check(name: str, says: str, rule: str) -> Callable[[Judge], Judge]:
    """Register a judge under a stable id."""

    def register(judge: Judge) -> Judge:
        CHECKS[name] = Claim(name, "beyond", says, rule, judge, feasibility=False)
        return judge

    return register


def judge_checks(cells: pl.DataFrame, run: Run) -> list[Row]:
    """The verdict on every check."""
    evidence = Evidence(cells, run)
    notes = unlike(run)
    for experiment in ("beyond", "ablation", "periods"):
        notes += missing(evidence.groups, experiment, run)
    return [judged(one, evidence, notes) for one in CHECKS.values()]


def kept(policy: str, evidence: Evidence) -> Finding:
    """Runs within all limits, of all and in the worst place."""
    keys = compared(policy)
    share = feasible(evidence, keys)
    least = min((evidence.feasible(key) for key in keys), key=lambda one: one.value)
    text = f"{share}; least in one place {least.value:.0%}"
    return Finding(always(share), text, {"share": share.value, "least": least.value})


def lost(policy: str, most: float, evidence: Evidence) -> Finding:
    """Regret over all places in parts of OMD's."""
    ours, theirs = regret(evidence, compared(policy)), regret(evidence, compared("omd"))
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, of which there is no part")
    ratio = ours / theirs
    text = f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}"
    return Finding(ratio <= most, text, {"ratio": ratio, "ours": ours, "omd": theirs})


for name in GUARDED:
    check(
        f"{name}-always-feasible",
        f"{name} keeps every limit in every run of the comparison.",
        "All limits are kept, with no tolerance, in every seed of every level and environment.",
    )(partial(kept, name))
    check(
        f"{name}-regret",
        f"{name} loses at most {MOST} of what OMD loses.",
        f"Its regret against the best multinomial policy under exact costs, mean over the eight "
        f"places, is at most {MOST} of OMD's.",
    )(partial(lost, name, MOST))
    check(
        f"{name}-regret-aim",
        f"{name} loses at most {AIM} of what OMD loses.",
        f"As {name}-regret, with {AIM}.",
    )(partial(lost, name, AIM))


@check(
    "distinct-beats-multinomial",
    "At stress, asking different experts earns more than the best multinomial policy.",
    "At stress, mean regret of distinct against the best multinomial policy that was found is "
    "below 0 by more than two standard errors, in both environments.",
)
def beats(evidence: Evidence) -> Finding:
    """Reward less the optimum, and in how many worlds it is above what can be proved."""
    keys = [Key("beyond", environment, "stress", "distinct", 3) for environment in ENVIRONMENTS]
    gains, proved, worlds = {}, 0, 0
    for key in keys:
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[key.environment] = paired(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        worlds += len(reward)
    text = f"reward less the optimum: {listed({**gains})}; above the proved ceiling of all "
    text += f"multinomial policies in {proved} of {worlds} worlds"
    numbers = {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved}
    return Finding(all(gain.clear for gain in gains.values()), text, numbers)


def no_bad_period(policy: str, evidence: Evidence) -> Finding:
    """Periods outside a limit, of all lengths."""
    keys = in_periods(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad = sum(sum(evidence.values(key, "bad_periods").values()) for key in keys)
    every = sum(sum(evidence.values(key, "periods").values()) for key in keys)
    text = f"{bad:,.0f} of {every:,.0f} periods outside a limit"
    return Finding(bad == 0, text, {"bad": bad, "periods": every})


for name in GUARDED:
    check(
        f"{name}-no-bad-period",
        f"{name} keeps every limit in every period, whatever its length.",
        "No period's mean cost is outside a limit, with no tolerance.",
    )(partial(no_bad_period, name))


@check(
    "guard-suffices",
    "The guard alone is enough: limits hold whatever other part is missing.",
    "Every run of the ablation that has the guard keeps all limits, with no tolerance.",
)
def suffices(evidence: Evidence) -> Finding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in PARTS if "guard" not in part)]
    keys = [key for name in GUARDED for part in parts for key in ablated(name, part)]
    share = feasible(evidence, keys)
    worst = min(keys, key=lambda key: evidence.feasible(key).value)
    text = f"{share}; least {evidence.feasible(worst).value:.0%} ({worst.policy}, {place(worst)})"
    rounds = np.mean([mean(evidence.values(key, "replaced")) for key in keys])
    text += f"; {rounds:.1f} rounds of a run replaced on average"
    return Finding(always(share), text, {"share": share.value, "replaced": float(rounds)})
