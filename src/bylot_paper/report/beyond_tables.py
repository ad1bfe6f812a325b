"""The groups of the experiments beyond the paper, and the tables of the report on them."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Floats
from bylot.reports.blocks import Block
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.grid import BINDING_LEVELS, LIMITED_LEVELS
from bylot_paper.plots.beyond import ABLATION_LABELS, name_variant
from bylot_paper.plots.panels import ENVIRONMENT_LABELS
from bylot_paper.policy_settings import BEYOND_POLICIES, GUARDED_POLICIES, format_default_tuning
from bylot_paper.report.formatting import (
    MEAN_AND_ERROR,
    NO_VALUE,
    fill_table,
    format_kept,
    format_mean,
    format_mean_error,
)

CASES = tuple(product((*LIMITED_LEVELS, "stress"), ENVIRONMENT_LABELS))
"""The eight cases of the comparison: a level and an environment each."""
HARD_CASES = tuple(product(BINDING_LEVELS, ENVIRONMENT_LABELS))
"""The four cases of all other experiments."""


def comparison_keys(policy: str) -> list[GroupKey]:
    """A policy's groups in the comparison."""
    return [GroupKey("beyond", environment, level, policy, 3) for level, environment in CASES]


def ablation_keys(policy: str, part: str) -> list[GroupKey]:
    """A policy's groups without one of its parts."""
    name = name_variant(policy, part)
    return [GroupKey("ablation", environment, level, name, 3) for level, environment in HARD_CASES]


def list_period_keys(groups: RecordGroups, policy: str) -> list[GroupKey]:
    """A policy's groups in periods, by case and length."""
    keys = [key for key in groups if key.experiment == "periods" and key.policy == policy]
    return sorted(
        keys, key=lambda key: (HARD_CASES.index((key.level, key.environment)), key.period)
    )


def has_groups(groups: RecordGroups, keys: Sequence[GroupKey]) -> bool:
    """Are there records of each?"""
    return all(key in groups for key in keys)


def mean_regret(groups: RecordGroups, keys: Sequence[GroupKey]) -> float:
    """Mean over groups of the mean over seeds."""
    return float(np.mean([groups.values(key, "regret_true").mean() for key in keys]))


def tabulate_policies_by_case(groups: RecordGroups) -> list[Block]:
    """All cases together, then regret and feasible runs by case."""
    lost, kept = f"Regret by case: {MEAN_AND_ERROR}", "Runs within all limits, with no tolerance"
    return [
        *tabulate_overall(groups),
        *tabulate_by_case(groups, lost, "regret_true", format_mean_error),
        *tabulate_by_case(groups, kept, "outside", format_kept),
    ]


def tabulate_overall(groups: RecordGroups) -> list[Block]:
    """One row per policy: all eight cases together."""
    rows = []
    for policy in BEYOND_POLICIES:
        keys, omd = comparison_keys(policy), comparison_keys("omd")
        if not has_groups(groups, keys):
            continue
        ours, theirs = (
            np.array([groups.values(key, "regret_true").mean() for key in some if key in groups])
            for some in (keys, omd)
        )
        parts = (NO_VALUE, NO_VALUE)
        if has_groups(groups, omd):
            parts = f"{ours.mean() / theirs.mean():.2f}", f"{(ours / theirs).max():.2f}"
        kept = [groups.values(key, "outside") <= 0 for key in keys]
        runs, least = np.concatenate(kept), min(one.mean() for one in kept)
        counts = f"{runs.sum()}/{runs.size}", f"{100 * least:.0f}%"
        rows.append((policy, f"{ours.mean():.4f}", *parts, *counts))
    head = (
        *("policy", "mean regret", "relative to OMD", "largest such ratio in one case"),
        *("runs within all limits", "least in one case"),
    )
    caption = "All eight cases: regret is against the best multinomial policy under exact costs"
    return fill_table(caption, head, rows)


def tabulate_by_case(
    groups: RecordGroups, caption: str, column: str, form: Callable[[Floats], str]
) -> list[Block]:
    """One row per case, one column per policy."""
    shown = [
        policy
        for policy in BEYOND_POLICIES
        if any(key in groups for key in comparison_keys(policy))
    ]
    rows = []
    for level, environment in CASES:
        keys = [GroupKey("beyond", environment, level, policy, 3) for policy in shown]
        if any(key in groups for key in keys):
            rows.append((level, environment, *(form(groups.values(key, column)) for key in keys)))
    return fill_table(caption, ("level", "environment", *shown), rows, words=2)


def tabulate_optima(groups: RecordGroups) -> list[Block]:
    """One row per case: the optimum, how sure it is, and what equal shares earn of it."""
    rows = []
    for level, environment in CASES:
        keys = [GroupKey("beyond", environment, level, policy, 3) for policy in BEYOND_POLICIES]
        key = next((key for key in keys if key in groups), None)
        if key is not None:
            best, gap = groups.values(key, "optimum"), groups.values(key, "optimum_gap")
            share = groups.values(key, "uniform") / best
            rows.append(
                (
                    *(level, environment, f"{best.mean():.4f}", f"{100 * share.mean():.1f}%"),
                    *(f"{gap.mean():.4f}", f"{gap.max():.4f}"),
                    f"{groups.values(key, 'optimum_spread').max():.0e}",
                )
            )
    head = (
        *("level", "environment", "optimum", "equal shares earn", "gap to the bound, mean"),
        *("largest", "spread over starts"),
    )
    caption = (
        "The best multinomial policy in hindsight under exact costs: its reward, the gap to the "
        "proved upper bound, and how much the results of different starts of the search differ"
    )
    return fill_table(caption, head, rows, words=2)


def tabulate_periods(groups: RecordGroups) -> list[Block]:
    """One row per policy and case: bad periods and regret at each length."""
    lengths = sorted({key.period or 0 for key in groups if key.experiment == "periods"})
    rows = []
    for policy, (level, environment) in product(BEYOND_POLICIES, HARD_CASES):
        keys = [GroupKey("periods", environment, level, policy, 3, length) for length in lengths]
        if any(key in groups for key in keys):
            bad = [format_bad_periods(groups, key) for key in keys]
            lost = [format_mean(groups.values(key, "regret_true")) for key in keys]
            rows.append((policy, level, environment, *bad, *lost))
    head = (
        *("policy", "level", "environment"),
        *(f"bad, P = {length:,}" for length in lengths),
        *(f"regret, P = {length:,}" for length in lengths),
    )
    caption = "Periods of P rounds outside a limit, and regret: means over seeds"
    return fill_table(caption, head, rows, words=3)


def format_bad_periods(groups: RecordGroups, key: GroupKey) -> str:
    """How many of all periods are outside a limit."""
    if key not in groups:
        return NO_VALUE
    bad, total = (groups.values(key, column).sum() for column in ("bad_periods", "periods"))
    return f"{bad:.0f}/{total:.0f}"


def tabulate_ablation(groups: RecordGroups) -> list[Block]:
    """One row per policy and missing part: regret by case, limits and guard over all cases."""
    rows = []
    for policy, (part, name) in product(GUARDED_POLICIES, ABLATION_LABELS.items()):
        keys = ablation_keys(policy, part)
        if has_groups(groups, keys):
            lost = [format_mean_error(groups.values(key, "regret_true")) for key in keys]
            kept = format_kept(np.concatenate([groups.values(key, "outside") for key in keys]))
            rounds = np.mean([groups.values(key, "replaced").mean() for key in keys])
            rows.append((policy, name, *lost, kept, f"{rounds:.1f}"))
    cases = (f"{level} {environment}" for level, environment in HARD_CASES)
    head = ("policy", "without", *cases, "runs within all limits", "rounds replaced")
    caption = f"Ablation: regret by case, {MEAN_AND_ERROR}; limits and guard over all cases"
    return fill_table(caption, head, rows, words=2)


class SettingsSweep(NamedTuple):
    """Regret of S settings of a policy in four cases on some seeds; the default is among them."""

    policy: str
    settings: list[str]
    lost: Floats  # (S, cases, seeds)
    feasible: float  # of all runs

    @property
    def usual(self) -> int:
        """Index of the default."""
        return self.settings.index(format_default_tuning(self.policy))

    @property
    def best(self) -> int:
        """Index of the setting that is best over all cases and seeds."""
        return int(self.lost.mean(axis=(1, 2)).argmin())

    @property
    def default(self) -> float:
        """Mean regret of the default."""
        return float(self.lost[self.usual].mean())

    @property
    def gain(self) -> float:
        """By how much the best setting reduces the regret of the default."""
        return self.default - float(self.lost[self.best].mean())

    @property
    def gain_elsewhere(self) -> float:
        """The same by cross-validation: the best of all other seeds is judged on each seed."""
        by_seed = self.lost.mean(axis=1)  # (S, seeds)
        gains = []
        for seed in range(by_seed.shape[1]):
            pick = np.delete(by_seed, seed, axis=1).mean(axis=1).argmin()
            gains.append(by_seed[self.usual, seed] - by_seed[pick, seed])
        return float(np.mean(gains))


def collect_sweeps(groups: RecordGroups) -> list[SettingsSweep]:
    """The sweep of every policy with records of several seeds and of its default."""
    found = []
    for policy in GUARDED_POLICIES:
        settings: dict[str, list[GroupKey]] = {}
        for key in groups:
            name, _, setting = key.policy.partition(":")
            if key.experiment == "settings" and name == policy:
                settings.setdefault(setting, []).append(key)
        whole = {name: keys for name, keys in settings.items() if len(keys) == len(HARD_CASES)}
        if format_default_tuning(policy) in whole:
            keys = [key for some in whole.values() for key in some]
            kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
            seeds = min(len(groups[key]) for key in keys)
            lost = np.array([list_regrets(groups, some, seeds) for some in whole.values()])
            if seeds > 1:
                found.append(SettingsSweep(policy, list(whole), lost, float(kept.mean())))
    return found


def list_regrets(groups: RecordGroups, keys: list[GroupKey], seeds: int) -> list[Floats]:
    """The regret of each seed in each case, in the order of the cases."""
    at = {(key.level, key.environment): key for key in keys}
    return [groups.values(at[case], "regret_true")[:seeds] for case in HARD_CASES]


def tabulate_settings(sweeps: Sequence[SettingsSweep]) -> list[Block]:
    """One row per policy."""
    head = (
        *("policy", "best setting of all", "settings tried", "seeds", "regret of the default"),
        *("of the best setting", "of the worst", "of the best of each case", "feasible runs"),
    )
    rows = []
    for one in sweeps:
        over_all, by_case = one.lost.mean(axis=(1, 2)), one.lost.mean(axis=2)
        regrets = (one.default, over_all.min(), over_all.max(), by_case.min(axis=0).mean())
        rows.append(
            (
                *(one.policy, one.settings[one.best].replace(",", ", "), str(len(one.settings))),
                str(one.lost.shape[2]),
                *(f"{regret:.4f}" for regret in regrets),
                f"{one.feasible:.1%}",
            )
        )
    caption = "What a sweep over settings would have gained: mean regret over four cases"
    return fill_table(caption, head, rows, words=2)
