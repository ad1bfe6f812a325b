"""The groups of the experiments beyond the paper, and the predicates of the checks on them."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from bylot_paper import grid
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.claims.measures import Evidence, RunShare, Untestable, paired_difference, seed_mean
from bylot_paper.claims.predicates import Finding, format_values

CASES = tuple(product((*grid.LIMITED_LEVELS, "stress"), grid.CROWD_ENVIRONMENTS))
"""The eight cases of the comparison: a level and an environment each."""
HARD_CASES = tuple(product(grid.BINDING_LEVELS, grid.CROWD_ENVIRONMENTS))
"""The four cases of all other experiments."""


def comparison_keys(policy: str) -> list[GroupKey]:
    return [GroupKey("beyond", environment, level, policy, 3) for level, environment in CASES]


def ablation_keys(policy: str, part: str) -> list[GroupKey]:
    name = f"{policy}:{part}" if part else policy
    return [GroupKey("ablation", environment, level, name, 3) for level, environment in HARD_CASES]


def list_period_keys(groups: RecordGroups, policy: str) -> list[GroupKey]:
    """A policy's groups in periods, by case and length."""
    order = {case: n for n, case in enumerate(HARD_CASES)}
    keys = [key for key in groups if key.experiment == "periods" and key.policy == policy]
    return sorted(keys, key=lambda key: (order[key.level, key.environment], key.period))


def pool_shares(evidence: Evidence, keys: Sequence[GroupKey]) -> tuple[RunShare, GroupKey]:
    """Feasible runs of several groups together, and the group with the smallest share."""
    shares = {key: evidence.feasible(key) for key in keys}
    pooled = RunShare(*(sum(counts) for counts in zip(*shares.values(), strict=True)))
    return pooled, min(keys, key=lambda key: shares[key].value)


def always_feasible(evidence: Evidence, policy: str) -> Finding:
    """Runs within all limits, of all and in the worst case."""
    share, worst = pool_shares(evidence, comparison_keys(policy))
    least = evidence.feasible(worst).value
    text = f"{share}; least in one case {least:.0%}"
    return Finding(share.value == 1, text, {"share": share.value, "least": least})


def small_regret(evidence: Evidence, policy: str, limit: float) -> Finding:
    """Regret over all cases relative to OMD's."""
    ours, theirs = (
        sum(seed_mean(evidence.values(key, "regret_true")) for key in keys) / len(keys)
        for keys in (comparison_keys(policy), comparison_keys("omd"))
    )
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, so no ratio to it exists")
    ratio = ours / theirs
    text = f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}"
    return Finding(ratio <= limit, text, {"ratio": ratio, "ours": ours, "omd": theirs})


def beats_multinomial(evidence: Evidence, policy: str) -> Finding:
    """Reward minus the optimum, and in how many runs it is above the proved bound."""
    gains, proved, runs = {}, 0, 0
    for environment in grid.CROWD_ENVIRONMENTS:
        key = GroupKey("beyond", environment, "stress", policy, 3)
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[environment] = paired_difference(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        runs += len(reward)
    text = f"reward minus the optimum: {format_values(gains)}; above the proved upper bound of all "
    text += f"multinomial policies in {proved} of {runs} runs"
    numbers = {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved}
    return Finding(all(gain.clear for gain in gains.values()), text, numbers)


def no_bad_period(evidence: Evidence, policy: str) -> Finding:
    """Periods outside a limit, of all lengths."""
    keys = list_period_keys(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad, total = (
        sum(sum(evidence.values(key, column).values()) for key in keys)
        for column in ("bad_periods", "periods")
    )
    text = f"{bad:,.0f} of {total:,.0f} periods outside a limit"
    return Finding(bad == 0, text, {"bad": bad, "periods": total})


def guard_suffices(evidence: Evidence) -> Finding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in grid.ABLATED_PARTS if "guard" not in part)]
    variants = product(grid.GUARDED_POLICIES, parts)
    keys = [key for name, part in variants for key in ablation_keys(name, part)]
    share, worst = pool_shares(evidence, keys)
    rounds = float(np.mean([seed_mean(evidence.values(key, "replaced")) for key in keys]))
    text = f"{share}; least {evidence.feasible(worst).value:.0%} ({worst.policy}, {worst.level} "
    text += f"{worst.environment}); {rounds:.1f} rounds of a run replaced on average"
    return Finding(share.value == 1, text, {"share": share.value, "replaced": rounds})
