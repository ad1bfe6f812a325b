"""The tables of the part past the paper, as text; each is None if no record fills it."""

from collections.abc import Sequence

import numpy as np

from bylot.experiments import BEYOND, GUARDED
from bylot.kernels.compile import Floats
from bylot.plots.ablation import NAMES
from bylot.plots.groups import Groups, Key, spread
from bylot.report.beyond.places import CELLS, HARD_CELLS, ablated, compared, in_periods
from bylot.report.blocks import Table
from bylot.report.tables import NONE, one

ERROR = "mean ± standard error over seeds"


def overall(groups: Groups) -> Table | None:
    """A row a policy: all eight places together."""
    rows = [summed(groups, policy) for policy in BEYOND if all_in(groups, compared(policy))]
    head = (
        *("policy", "mean regret", "of OMD's", "largest part of OMD's in one place"),
        *("runs within all limits", "least in one place"),
    )
    caption = "All eight places: regret is against the best multinomial policy under exact costs"
    return Table(caption, head, rows) if rows else None


def summed(groups: Groups, policy: str) -> tuple[str, ...]:
    """A row of the above."""
    keys = compared(policy)
    ours = np.array([groups.values(key, "regret_true").mean() for key in keys])
    kept = [groups.values(key, "outside") <= 0 for key in keys]
    parts = (NONE, NONE)
    if all_in(groups, compared("omd")):
        omd = np.array([groups.values(key, "regret_true").mean() for key in compared("omd")])
        parts = f"{ours.mean() / omd.mean():.2f}", f"{(ours / omd).max():.2f}"
    runs = np.concatenate(kept)
    least = min(one.mean() for one in kept)
    return policy, f"{ours.mean():.4f}", *parts, f"{runs.sum()}/{runs.size}", f"{100 * least:.0f}%"


def by_place(groups: Groups) -> Table | None:
    """A row a place: what every policy lost there."""
    shown = [policy for policy in BEYOND if any(key in groups for key in compared(policy))]
    rows = [
        (
            *where,
            *(erring(groups.values(key, "regret_true")) for key in keys_at(where, shown)),
        )
        for where in CELLS
        if any(key in groups for key in keys_at(where, shown))
    ]
    head = ("level", "environment", *shown)
    return Table(f"Regret by place: {ERROR}", head, rows, words=2) if rows else None


def feasibility(groups: Groups) -> Table | None:
    """A row a place: how many runs were within all limits."""
    shown = [policy for policy in BEYOND if any(key in groups for key in compared(policy))]
    rows = [
        (*where, *(counted(groups.values(key, "outside")) for key in keys_at(where, shown)))
        for where in CELLS
        if any(key in groups for key in keys_at(where, shown))
    ]
    head = ("level", "environment", *shown)
    caption = "Runs within all limits, with no tolerance"
    return Table(caption, head, rows, words=2) if rows else None


def optima(groups: Groups) -> Table | None:
    """A row a place: what could be had, how sure that is, and what equal shares have of it."""
    rows = []
    for level, environment in CELLS:
        keys = keys_at((level, environment), BEYOND)
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
    return Table(caption, head, rows, words=2) if rows else None


def periods(groups: Groups) -> Table | None:
    """A row a policy and place: bad periods and regret at each length."""
    lengths = sorted({key.period or 0 for key in groups if key.experiment == "periods"})
    rows = []
    for policy in BEYOND:
        keys = in_periods(groups, policy)
        for level, environment in HARD_CELLS:
            here = {key.period: key for key in keys if key[1:3] == (environment, level)}
            if here:
                bad = [badness(groups, here.get(length)) for length in lengths]
                lost = [
                    one(groups.values(here[length], "regret_true")) if length in here else NONE
                    for length in lengths
                ]
                rows.append((policy, level, environment, *bad, *lost))
    head = (
        *("policy", "level", "environment"),
        *(f"bad, P = {length:,}" for length in lengths),
        *(f"regret, P = {length:,}" for length in lengths),
    )
    caption = "Periods of P rounds that left a limit, and regret: means over seeds"
    return Table(caption, head, rows, words=3) if rows else None


def ablation(groups: Groups) -> Table | None:
    """A row a policy and missing part: regret by place, then limits and guard over all."""
    rows = []
    for policy in GUARDED:
        for part, name in NAMES.items():
            keys = ablated(policy, part)
            if all_in(groups, keys):
                kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
                rounds = [groups.values(key, "replaced").mean() for key in keys]
                lost = [erring(groups.values(key, "regret_true")) for key in keys]
                row = (policy, name, *lost, f"{kept.sum()}/{kept.size}", f"{np.mean(rounds):.1f}")
                rows.append(row)
    places = (f"{level} {environment}" for level, environment in HARD_CELLS)
    head = ("policy", "without", *places, "runs within all limits", "rounds replaced")
    caption = f"Without one of their parts: regret by place, {ERROR}; limits and guard over all"
    return Table(caption, head, rows, words=2) if rows else None


def keys_at(where: tuple[str, str], policies: Sequence[str]) -> list[Key]:
    """The groups of some policies in one place of the comparison."""
    level, environment = where
    return [Key("beyond", environment, level, policy, 3) for policy in policies]


def all_in(groups: Groups, keys: Sequence[Key]) -> bool:
    """Is there something of each?"""
    return all(key in groups for key in keys)


def badness(groups: Groups, key: Key | None) -> str:
    """Bad periods of all."""
    if key is None:
        return NONE
    bad, every = (groups.values(key, column).sum() for column in ("bad_periods", "periods"))
    return f"{bad:.0f}/{every:.0f}"


def counted(outside: Floats) -> str:
    """Runs within all limits, of all."""
    return f"{int((outside <= 0).sum())}/{outside.size}" if outside.size else NONE


def erring(values: Floats) -> str:
    """Mean ± standard error.

    >>> erring(np.array([1.0, 2.0, 1.0, 2.0]))
    '1.5000 ± 0.2887'
    """
    if values.size < 2:
        return one(values)
    return f"{values.mean():.4f} ± {float(spread(values)) / values.size**0.5:.4f}"
