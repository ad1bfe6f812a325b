"""The part of the report that is about the paper's experiments: claims, figures, tables."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import polars as pl

from bylot.metrics import LIMIT_TOLERANCES
from bylot.numerics.jit import Floats
from bylot.reports import PAPER_POLICY_STYLES, Block, Bullets, Heading, Paragraph
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest, name_data, sweep_key
from bylot_paper.claims.judge import (
    UNKNOWN,
    JudgedClaim,
    compare_readings,
    describe_other_data,
    judge_by_id,
)
from bylot_paper.claims.measures import NEAR_OPTIMAL, Evidence, RunShare
from bylot_paper.report.figures import ENVIRONMENT_LABELS, LEVEL_STYLES, DrawnFigures
from bylot_paper.report.formatting import (
    NO_VALUE,
    TEXTS,
    Verdicts,
    build_figure,
    count_claim_verdicts,
    fill_table,
    format_mean,
    format_mean_std,
    tabulate_untested,
)
from bylot_paper.scenarios import PAPER_LEVELS

LOOSER_THRESHOLD = 0.98
"""Another threshold for near-optimal; the report says which verdicts it would change."""
TABULATED_UPDATES = (1, 10, 30, 100, 300, 1_000)


def build_paper_section(
    cells: pl.DataFrame, run: RunManifest, claims: Sequence[JudgedClaim], figures: DrawnFigures
) -> list[Block]:
    """Everything that is said of the paper's experiments, as far as the records go."""
    groups, total = RecordGroups(cells), count_claims(claims, run)
    blocks: list[Block] = [Paragraph(total), Heading("Limits"), *tabulate_levels(groups)]
    blocks.append(Heading("Figures"))
    for name in ("sweep", "crowd", "rolling"):
        blocks += build_figure(name, figures[name], run) or [
            Paragraph(
                f"{TEXTS['figures'][name]['alt']}: no figure, as the records hold no such cells."
            )
        ]
    blocks += [Heading("Sentence by sentence"), *build_claims(claims, total)]
    usual, looser = (
        judge_by_id(Evidence(cells, run, near)) for near in (NEAR_OPTIMAL, LOOSER_THRESHOLD)
    )
    changes = ", ".join(name for name, verdict in usual.items() if verdict != looser[name])
    change = f"these verdicts would change: {changes}" if changes else "no verdict would change"
    blocks.append(
        Paragraph(
            f"Near-optimal means {NEAR_OPTIMAL:.0%} of the true optimum here; at "
            f"{LOOSER_THRESHOLD:.0%}, {change}."
        )
    )
    blocks += build_readings(cells, run)
    tables = tabulate_decay(groups)
    for environment in ENVIRONMENT_LABELS:
        tables += tabulate_comparison(groups, environment)
    tables += tabulate_theorems(groups)
    return [
        *blocks,
        Heading("The numbers behind the figures"),
        *tables,
        Paragraph(TEXTS["paragraphs"]["theorems"] if tables else "The records are empty."),
        Heading("How the paper was read"),
        Paragraph(TEXTS["paragraphs"]["readings"]),
        Bullets(TEXTS["notes"]["paper"]),
    ]


def count_claims(claims: Sequence[JudgedClaim], run: RunManifest) -> str:
    """How many claims hold, and on which data if these are not the paper's."""
    what = "statements of the paper's results"
    if describe_other_data(run):
        what += f" (judged on the {name_data(run)} crowd, which is not the paper's)"
    return count_claim_verdicts(claims, what)


def build_claims(claims: Sequence[JudgedClaim], total: str) -> list[Block]:
    """Every claim by section, and those that cannot be tested in a table."""
    tested = [row for row in claims if row.verdict != UNKNOWN]
    blocks: list[Block] = [Paragraph(TEXTS["paragraphs"]["claims"]), Paragraph(total)]
    for section in dict.fromkeys(row.section for row in tested):
        blocks.append(Heading(f"Section {section}", 3))
        blocks.append(Verdicts([row for row in tested if row.section == section]))
    untested = tabulate_untested("What these records do not cover", "claim", claims)
    return [*blocks, *([Heading("Cannot be tested", 3), *untested] if untested else [])]


def build_readings(cells: pl.DataFrame, run: RunManifest) -> list[Block]:
    found = compare_readings(cells, run)
    if not found:
        return []
    rows = [reading for reading in found if reading.usual != reading.other]
    used = dict.fromkeys(reading.variant for reading in found)
    return [
        Heading("Other readings"),
        Paragraph(f"{len(rows)} of {len(found)} verdicts on feasibility would change."),
        Bullets([f"{variant}: {TEXTS['readings'][variant]}." for variant in used]),
        *fill_table("readings", rows),
    ]


def tabulate_levels(groups: RecordGroups) -> list[Block]:
    """The paper's first table, with the limits on workload that it came to in these records."""
    rows = []
    for name, style in LEVEL_STYLES.items():
        level = PAPER_LEVELS[name]
        margin, cap = (f"{level.margin:+}", f"{level.cap:g}") if level else (NO_VALUE, NO_VALUE)
        bounds = np.concatenate(
            [
                np.zeros(0),
                *(groups.read(key, "workload_bound") for key in groups if key.level == name),
            ]
        )
        reached = f"{bounds.min():.3f} to {bounds.max():.3f}" if bounds.size else NO_VALUE
        rows.append((style.name, margin, cap, reached))
    return fill_table("levels", rows)


def tabulate_comparison(groups: RecordGroups, environment: str) -> list[Block]:
    """All measures of the eight policies (and variants, if present) in one environment."""
    shown = {key.policy for key in groups if key[:2] == ("crowd", environment)}
    policies = [*PAPER_POLICY_STYLES, *sorted(shown - PAPER_POLICY_STYLES.keys())]
    rows = []
    for level, policy in product(LEVEL_STYLES, policies):
        key = GroupKey("crowd", environment, level, policy, 3)
        if key in groups:
            read = partial(groups.read, key)
            style = PAPER_POLICY_STYLES.get(policy)
            rows.append(
                (
                    LEVEL_STYLES[level].name,
                    style.name if style else policy,
                    str(len(groups[key])),
                    *(format_mean_std(read(column)) for column in ("reward", "regret_true")),
                    *(format_share(read("outside"), tolerance) for tolerance in LIMIT_TOLERANCES),
                    *(format_mean(read(column)) for column in ("r2", "expert", "workload")),
                )
            )
    return fill_table("comparison", rows, environment=ENVIRONMENT_LABELS[environment].capitalize())


def format_share(outside: Floats, tolerance: float) -> str:
    """Share of seeds no further outside than a tolerance, with its interval, in %."""
    if not outside.size:
        return NO_VALUE
    share = RunShare(int((outside <= tolerance).sum()), outside.size)
    low, high = share.interval
    return f"{100 * share.value:.0f} ({100 * low:.0f} to {100 * high:.0f})"


def tabulate_decay(groups: RecordGroups) -> list[Block]:
    """R1 for both definitions and R2 of the sweep at a few updates."""
    measures = {
        "R1, true optimum": "curve_r1_true",
        "R1, last policy": "curve_r1_proxy",
        "R2": "curve_r2",
    }
    rows = [
        (f"{N}", LEVEL_STYLES[level].name, name, *format_at_updates(groups, key, column))
        for (name, column), N, level in product(measures.items(), (3, 5), LEVEL_STYLES)
        if (key := sweep_key(N, level)) in groups
    ]
    return fill_table("decay", rows, [f"n = {n:,}" for n in TABULATED_UPDATES])


def format_at_updates(groups: RecordGroups, key: GroupKey, column: str) -> list[str]:
    """A curve at the tabulated updates; a dash after the end of the run."""
    curve = groups.curve(key, column)
    if curve is None:
        return [NO_VALUE] * len(TABULATED_UPDATES)
    return [
        format_mean_std(curve.seeds[:, int(np.searchsorted(curve.n, n))])
        if n <= curve.n[-1]
        else NO_VALUE
        for n in TABULATED_UPDATES
    ]


def tabulate_theorems(groups: RecordGroups) -> list[Block]:
    """OMD's regret and distance next to the right-hand sides of the theorems."""
    order = list(LEVEL_STYLES)
    keys = [key for key in groups if key.policy.startswith("omd")]
    keys.sort(key=lambda key: (key._replace(level=""), order.index(key.level)))
    return fill_table(
        "theorems",
        [
            (
                key.experiment,
                key.environment,
                LEVEL_STYLES[key.level].name,
                key.policy,
                str(key.dimensions),
                *compare_with_bound(groups, key, "regret_true", "r1_bound"),
                *compare_with_bound(groups, key, "r2", "r2_bound"),
            )
            for key in keys
        ],
    )


def compare_with_bound(
    groups: RecordGroups, key: GroupKey, column: str, bound: str
) -> tuple[str, str, str]:
    """A measured mean, the mean of its bound, and how many seeds are within the bound."""
    both = groups[key].select(column, bound).drop_nulls().to_numpy()
    within = f"{int((both[:, 0] <= both[:, 1]).sum())}/{len(both)}" if len(both) else NO_VALUE
    mean, most = (format_mean(groups.read(key, name)) for name in (column, bound))
    return mean, most, within
