"""The tables of the part past the paper, as text; each is None if no record fills it."""

from collections.abc import Sequence

import numpy as np

from bylot.harness import seed_std
from bylot.numerics.jit import Floats
from bylot.reports.blocks import TableBlock
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.plots.beyond import ABLATION_LABELS
from bylot_paper.policy_settings import BEYOND_POLICIES, GUARDED_POLICIES
from bylot_paper.report.beyond.places import (
    BEYOND_CASES,
    HARD_CASES,
    ablation_keys,
    comparison_keys,
    period_keys,
)
from bylot_paper.report.paper_tables import NO_VALUE, format_mean

MEAN_AND_ERROR = "mean ± standard error over seeds"


def tabulate_overall(groups: RecordGroups) -> TableBlock | None:
    """A row a policy: all eight places together."""
    rows = [
        make_overall_row(groups, policy)
        for policy in BEYOND_POLICIES
        if has_groups(groups, comparison_keys(policy))
    ]
    head = (
        *("policy", "mean regret", "of OMD's", "largest part of OMD's in one place"),
        *("runs within all limits", "least in one place"),
    )
    caption = "All eight places: regret is against the best multinomial policy under exact costs"
    return TableBlock(caption, head, rows) if rows else None


def make_overall_row(groups: RecordGroups, policy: str) -> tuple[str, ...]:
    """A row of the above."""
    keys = comparison_keys(policy)
    ours = np.array([groups.values(key, "regret_true").mean() for key in keys])
    kept = [groups.values(key, "outside") <= 0 for key in keys]
    parts = (NO_VALUE, NO_VALUE)
    if has_groups(groups, comparison_keys("omd")):
        omd = np.array([groups.values(key, "regret_true").mean() for key in comparison_keys("omd")])
        parts = f"{ours.mean() / omd.mean():.2f}", f"{(ours / omd).max():.2f}"
    runs = np.concatenate(kept)
    least = min(one.mean() for one in kept)
    return policy, f"{ours.mean():.4f}", *parts, f"{runs.sum()}/{runs.size}", f"{100 * least:.0f}%"


def tabulate_regret(groups: RecordGroups) -> TableBlock | None:
    """A row a place: what every policy lost there."""
    shown = [
        policy
        for policy in BEYOND_POLICIES
        if any(key in groups for key in comparison_keys(policy))
    ]
    rows = [
        (
            *where,
            *(
                format_mean_error(groups.values(key, "regret_true"))
                for key in place_keys(where, shown)
            ),
        )
        for where in BEYOND_CASES
        if any(key in groups for key in place_keys(where, shown))
    ]
    head = ("level", "environment", *shown)
    return TableBlock(f"Regret by place: {MEAN_AND_ERROR}", head, rows, words=2) if rows else None


def tabulate_feasibility(groups: RecordGroups) -> TableBlock | None:
    """A row a place: how many runs were within all limits."""
    shown = [
        policy
        for policy in BEYOND_POLICIES
        if any(key in groups for key in comparison_keys(policy))
    ]
    rows = [
        (
            *where,
            *(
                format_feasible_count(groups.values(key, "outside"))
                for key in place_keys(where, shown)
            ),
        )
        for where in BEYOND_CASES
        if any(key in groups for key in place_keys(where, shown))
    ]
    head = ("level", "environment", *shown)
    caption = "Runs within all limits, with no tolerance"
    return TableBlock(caption, head, rows, words=2) if rows else None


def tabulate_optima(groups: RecordGroups) -> TableBlock | None:
    """A row a place: what could be had, how sure that is, and what equal shares have of it."""
    rows = []
    for level, environment in BEYOND_CASES:
        keys = place_keys((level, environment), BEYOND_POLICIES)
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
        *("level", "environment", "optimum", "equal shares earn", "gap to the ceiling, mean"),
        *("largest", "starts apart"),
    )
    caption = (
        "The best multinomial policy in hindsight under exact costs: its reward, what is proved of "
        "it, and how far apart the places are that the search came to from different starts"
    )
    return TableBlock(caption, head, rows, words=2) if rows else None


def tabulate_periods(groups: RecordGroups) -> TableBlock | None:
    """A row a policy and place: bad periods and regret at each length."""
    lengths = sorted({key.period or 0 for key in groups if key.experiment == "periods"})
    rows = []
    for policy in BEYOND_POLICIES:
        keys = period_keys(groups, policy)
        for level, environment in HARD_CASES:
            here = {key.period: key for key in keys if key[1:3] == (environment, level)}
            if here:
                bad = [format_bad_periods(groups, here.get(length)) for length in lengths]
                lost = [
                    format_mean(groups.values(here[length], "regret_true"))
                    if length in here
                    else NO_VALUE
                    for length in lengths
                ]
                rows.append((policy, level, environment, *bad, *lost))
    head = (
        *("policy", "level", "environment"),
        *(f"bad, P = {length:,}" for length in lengths),
        *(f"regret, P = {length:,}" for length in lengths),
    )
    caption = "Periods of P rounds that left a limit, and regret: means over seeds"
    return TableBlock(caption, head, rows, words=3) if rows else None


def tabulate_ablation(groups: RecordGroups) -> TableBlock | None:
    """A row a policy and missing part: regret by place, then limits and guard over all."""
    rows = []
    for policy in GUARDED_POLICIES:
        for part, name in ABLATION_LABELS.items():
            keys = ablation_keys(policy, part)
            if has_groups(groups, keys):
                kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
                rounds = [groups.values(key, "replaced").mean() for key in keys]
                lost = [format_mean_error(groups.values(key, "regret_true")) for key in keys]
                row = (policy, name, *lost, f"{kept.sum()}/{kept.size}", f"{np.mean(rounds):.1f}")
                rows.append(row)
    places = (f"{level} {environment}" for level, environment in HARD_CASES)
    head = ("policy", "without", *places, "runs within all limits", "rounds replaced")
    caption = (
        f"Without one of their parts: regret by place, {MEAN_AND_ERROR}; limits and guard over all"
    )
    return TableBlock(caption, head, rows, words=2) if rows else None


def place_keys(where: tuple[str, str], policies: Sequence[str]) -> list[GroupKey]:
    """The groups of some policies in one place of the comparison."""
    level, environment = where
    return [GroupKey("beyond", environment, level, policy, 3) for policy in policies]


def has_groups(groups: RecordGroups, keys: Sequence[GroupKey]) -> bool:
    """Is there something of each?"""
    return all(key in groups for key in keys)


def format_bad_periods(groups: RecordGroups, key: GroupKey | None) -> str:
    """Bad periods of all."""
    if key is None:
        return NO_VALUE
    bad, every = (groups.values(key, column).sum() for column in ("bad_periods", "periods"))
    return f"{bad:.0f}/{every:.0f}"


def format_feasible_count(outside: Floats) -> str:
    """Runs within all limits, of all."""
    return f"{int((outside <= 0).sum())}/{outside.size}" if outside.size else NO_VALUE


def format_mean_error(values: Floats) -> str:
    """Mean ± standard error.

    >>> format_mean_error(np.array([1.0, 2.0, 1.0, 2.0]))
    '1.5000 ± 0.2887'
    """
    if values.size < 2:
        return format_mean(values)
    return f"{values.mean():.4f} ± {float(seed_std(values)) / values.size**0.5:.4f}"
