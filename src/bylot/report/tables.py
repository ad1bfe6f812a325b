"""The tables behind the figures, as text."""

import numpy as np

from bylot import experiments
from bylot.kernels.compile import Floats
from bylot.metrics import TOLERANCES
from bylot.plots.groups import Groups, Key, crowd, spread, sweep
from bylot.plots.style import ENVIRONMENTS, LEVELS, POLICIES
from bylot.report.blocks import Table
from bylot.report.evidence import Share

UPDATES = (1, 10, 30, 100, 300, 1_000)
NONE = "–"


def levels(groups: Groups) -> Table:
    """The paper's first table, with the limits on workload that it came to in these records."""
    rows = []
    for level, look in LEVELS.items():
        paper = experiments.LEVELS[level]
        margin, cap = (f"{paper.margin:+}", f"{paper.cap:g}") if paper else (NONE, NONE)
        found = [groups.values(key, "workload_bound") for key in groups if key.level == level]
        bounds = np.concatenate(found) if found else np.zeros(0)
        rows.append((look.name, margin, cap, spanned(bounds)))
    head = ("level", "margin on workload", "cap on experts", "limit on workload in the records")
    caption = "Levels of limits (Table 1): workload at most 5 x its pool mean + margin, per round"
    return Table(caption, head, rows)


def comparison(groups: Groups, environment: str) -> Table | None:
    """Everything on the eight policies (and variants, if they were run) in one environment."""
    shown = [key for key in groups if key.experiment == "crowd" and key.environment == environment]
    if not shown:
        return None
    policies = [*POLICIES, *sorted({key.policy for key in shown} - POLICIES.keys())]
    keys = [crowd(environment, level, policy) for level in LEVELS for policy in policies]
    head = (
        *("level", "policy", "seeds", "reward", "true regret"),
        *("feasible at 0", "at 0.001", "at 0.01", "R2", "experts", "workload"),
    )
    rows = [compared(groups, key) for key in keys if key in groups]
    caption = (
        f"{ENVIRONMENTS[environment].capitalize()} environment: mean ± standard deviation over "
        f"seeds; feasible seeds in % with Wilson's 95% interval"
    )
    return Table(caption, head, rows, words=2)


def compared(groups: Groups, key: Key) -> tuple[str, ...]:
    """A row of the comparison."""
    look = POLICIES.get(key.policy)
    outside = groups.values(key, "outside")
    return (
        LEVELS[key.level].name,
        look.name if look else key.policy,
        str(len(groups[key])),
        give(groups.values(key, "reward")),
        give(groups.values(key, "regret_true")),
        *(feasible(outside, tolerance) for tolerance in TOLERANCES),
        *(one(groups.values(key, column)) for column in ("r2", "expert", "workload")),
    )


def decay(groups: Groups) -> Table | None:
    """R1 both ways and R2 of the sweep at a few updates."""
    measures = {
        "R1, true optimum": "curve_r1_true",
        "R1, stand-in": "curve_r1_proxy",
        "R2": "curve_r2",
    }
    keys = [sweep(N, level) for N in (3, 5) for level in LEVELS]
    rows = [
        (f"{key.dimensions}", LEVELS[key.level].name, name, *at_updates(groups, key, column))
        for name, column in measures.items()
        for key in keys
        if key in groups
    ]
    if not rows:
        return None
    head = ("N", "level", "measure", *(f"n = {n:,}" for n in UPDATES))
    caption = "Sweep: mean ± standard deviation over seeds at update n = t/10"
    return Table(caption, head, rows, words=3)


def at_updates(groups: Groups, key: Key, column: str) -> list[str]:
    """A curve at the tabulated updates; a dash where the run was over."""
    curve = groups.curve(key, column)
    if curve is None:
        return [NONE] * len(UPDATES)
    return [
        give(curve.seeds[:, int(np.searchsorted(curve.n, n))]) if n <= curve.n[-1] else NONE
        for n in UPDATES
    ]


def theorems(groups: Groups) -> Table | None:
    """OMD's regret and distance next to the right-hand sides of the theorems."""
    order = list(LEVELS)
    keys = sorted(
        (key for key in groups if key.policy.startswith("omd")),
        key=lambda one: (one._replace(level=""), order.index(one.level)),
    )
    if not keys:
        return None
    head = (
        *("experiment", "environment", "level", "policy", "N"),
        *("R1", "its bound", "seeds within", "R2", "its bound", "seeds within"),
    )
    rows = [
        (
            *(key.experiment, key.environment, LEVELS[key.level].name, key.policy),
            str(key.dimensions),
            *against(groups, key, "regret_true", "r1_bound"),
            *against(groups, key, "r2", "r2_bound"),
        )
        for key in keys
    ]
    caption = "OMD at the end of the run against Theorems 1 (R1) and 2 (R2): means over seeds"
    return Table(caption, head, rows, words=4)


def against(groups: Groups, key: Key, column: str, bound: str) -> tuple[str, str, str]:
    """A measured mean, the mean of its bound, and how many seeds are within."""
    both = groups[key].select(column, bound).drop_nulls().to_numpy()
    within = f"{int((both[:, 0] <= both[:, 1]).sum())}/{len(both)}" if len(both) else NONE
    return one(groups.values(key, column)), one(groups.values(key, bound)), within


def give(values: Floats) -> str:
    """Mean ± standard deviation; the mean alone if there is one seed.

    >>> give(np.array([1.0, 2.0]))
    '1.5000 ± 0.7071'
    """
    if values.size < 2:
        return one(values)
    return f"{values.mean():.4f} ± {float(spread(values)):.4f}"


def one(values: Floats) -> str:
    """The mean; a dash if there is nothing."""
    return f"{values.mean():.4f}" if values.size else NONE


def spanned(values: Floats) -> str:
    """From the least to the largest."""
    return f"{values.min():.3f} to {values.max():.3f}" if values.size else NONE


def feasible(outside: Floats, tolerance: float) -> str:
    """Share of seeds no further outside than a tolerance, with its interval, in %."""
    if not outside.size:
        return NONE
    share = Share(int((outside <= tolerance).sum()), outside.size)
    low, high = share.interval
    return f"{100 * share.value:.0f} ({100 * low:.0f} to {100 * high:.0f})"
