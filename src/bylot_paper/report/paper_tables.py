"""The tables behind the figures, as text."""

import numpy as np

from bylot.harness import seed_std
from bylot.metrics import LIMIT_TOLERANCES
from bylot.numerics.jit import Floats
from bylot.reports.blocks import TableBlock
from bylot.reports.style import ENVIRONMENT_LABELS, LEVEL_STYLES, PAPER_POLICY_STYLES
from bylot_paper.analysis import GroupKey, RecordGroups, crowd_key, sweep_key
from bylot_paper.crowd_scenario import PAPER_LEVELS
from bylot_paper.evidence import RunShare

TABULATED_UPDATES = (1, 10, 30, 100, 300, 1_000)
NO_VALUE = "–"


def tabulate_levels(groups: RecordGroups) -> TableBlock:
    """The paper's first table, with the limits on workload that it came to in these records."""
    rows = []
    for level, look in LEVEL_STYLES.items():
        paper = PAPER_LEVELS[level]
        margin, cap = (f"{paper.margin:+}", f"{paper.cap:g}") if paper else (NO_VALUE, NO_VALUE)
        found = [groups.values(key, "workload_bound") for key in groups if key.level == level]
        bounds = np.concatenate(found) if found else np.zeros(0)
        rows.append((look.name, margin, cap, format_range(bounds)))
    head = ("level", "margin on workload", "cap on experts", "limit on workload in the records")
    caption = "Levels of limits (Table 1): workload at most 5 x its pool mean + margin, per round"
    return TableBlock(caption, head, rows)


def tabulate_comparison(groups: RecordGroups, environment: str) -> TableBlock | None:
    """Everything on the eight policies (and variants, if they were run) in one environment."""
    shown = [key for key in groups if key.experiment == "crowd" and key.environment == environment]
    if not shown:
        return None
    policies = [
        *PAPER_POLICY_STYLES,
        *sorted({key.policy for key in shown} - PAPER_POLICY_STYLES.keys()),
    ]
    keys = [crowd_key(environment, level, policy) for level in LEVEL_STYLES for policy in policies]
    head = (
        *("level", "policy", "seeds", "reward", "true regret"),
        *("feasible at 0", "at 0.001", "at 0.01", "R2", "experts", "workload"),
    )
    rows = [make_comparison_row(groups, key) for key in keys if key in groups]
    caption = (
        f"{ENVIRONMENT_LABELS[environment].capitalize()} environment: mean ± standard deviation over "
        f"seeds; feasible seeds in % with Wilson's 95% interval"
    )
    return TableBlock(caption, head, rows, words=2)


def make_comparison_row(groups: RecordGroups, key: GroupKey) -> tuple[str, ...]:
    """A row of the comparison."""
    look = PAPER_POLICY_STYLES.get(key.policy)
    outside = groups.values(key, "outside")
    return (
        LEVEL_STYLES[key.level].name,
        look.name if look else key.policy,
        str(len(groups[key])),
        format_mean_std(groups.values(key, "reward")),
        format_mean_std(groups.values(key, "regret_true")),
        *(format_feasible_share(outside, tolerance) for tolerance in LIMIT_TOLERANCES),
        *(format_mean(groups.values(key, column)) for column in ("r2", "expert", "workload")),
    )


def tabulate_decay(groups: RecordGroups) -> TableBlock | None:
    """R1 both ways and R2 of the sweep at a few updates."""
    measures = {
        "R1, true optimum": "curve_r1_true",
        "R1, stand-in": "curve_r1_proxy",
        "R2": "curve_r2",
    }
    keys = [sweep_key(N, level) for N in (3, 5) for level in LEVEL_STYLES]
    rows = [
        (
            f"{key.dimensions}",
            LEVEL_STYLES[key.level].name,
            name,
            *format_at_updates(groups, key, column),
        )
        for name, column in measures.items()
        for key in keys
        if key in groups
    ]
    if not rows:
        return None
    head = ("N", "level", "measure", *(f"n = {n:,}" for n in TABULATED_UPDATES))
    caption = "Sweep: mean ± standard deviation over seeds at update n = t/10"
    return TableBlock(caption, head, rows, words=3)


def format_at_updates(groups: RecordGroups, key: GroupKey, column: str) -> list[str]:
    """A curve at the tabulated updates; a dash where the run was over."""
    curve = groups.curve(key, column)
    if curve is None:
        return [NO_VALUE] * len(TABULATED_UPDATES)
    return [
        format_mean_std(curve.seeds[:, int(np.searchsorted(curve.n, n))])
        if n <= curve.n[-1]
        else NO_VALUE
        for n in TABULATED_UPDATES
    ]


def tabulate_theorems(groups: RecordGroups) -> TableBlock | None:
    """OMD's regret and distance next to the right-hand sides of the theorems."""
    order = list(LEVEL_STYLES)
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
            *(key.experiment, key.environment, LEVEL_STYLES[key.level].name, key.policy),
            str(key.dimensions),
            *compare_with_bound(groups, key, "regret_true", "r1_bound"),
            *compare_with_bound(groups, key, "r2", "r2_bound"),
        )
        for key in keys
    ]
    caption = "OMD at the end of the run against Theorems 1 (R1) and 2 (R2): means over seeds"
    return TableBlock(caption, head, rows, words=4)


def compare_with_bound(
    groups: RecordGroups, key: GroupKey, column: str, bound: str
) -> tuple[str, str, str]:
    """A measured mean, the mean of its bound, and how many seeds are within."""
    both = groups[key].select(column, bound).drop_nulls().to_numpy()
    within = f"{int((both[:, 0] <= both[:, 1]).sum())}/{len(both)}" if len(both) else NO_VALUE
    return format_mean(groups.values(key, column)), format_mean(groups.values(key, bound)), within


def format_mean_std(values: Floats) -> str:
    """Mean ± standard deviation; the mean alone if there is one seed.

    >>> format_mean_std(np.array([1.0, 2.0]))
    '1.5000 ± 0.7071'
    """
    if values.size < 2:
        return format_mean(values)
    return f"{values.mean():.4f} ± {float(seed_std(values)):.4f}"


def format_mean(values: Floats) -> str:
    """The mean; a dash if there is nothing."""
    return f"{values.mean():.4f}" if values.size else NO_VALUE


def format_range(values: Floats) -> str:
    """From the least to the largest."""
    return f"{values.min():.3f} to {values.max():.3f}" if values.size else NO_VALUE


def format_feasible_share(outside: Floats, tolerance: float) -> str:
    """Share of seeds no further outside than a tolerance, with its interval, in %."""
    if not outside.size:
        return NO_VALUE
    share = RunShare(int((outside <= tolerance).sum()), outside.size)
    low, high = share.interval
    return f"{100 * share.value:.0f} ({100 * low:.0f} to {100 * high:.0f})"
