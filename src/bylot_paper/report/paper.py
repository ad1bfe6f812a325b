"""What the report says, in which order."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bylot.reports.blocks import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Banner,
    Block,
    Bullets,
    Figure,
    Heading,
    JudgedClaim,
    Paragraph,
    TableBlock,
    Verdicts,
)
from bylot.reports.style import ENVIRONMENT_LABELS
from bylot_paper import grid
from bylot_paper.analysis import RecordGroups, RunManifest, format_seed_count, is_synthetic
from bylot_paper.claims import (
    READING_VARIANTS,
    Reading,
    describe_missing,
    describe_other_data,
    list_complete_cells,
    list_run_differences,
)
from bylot_paper.evidence import NEAR_OPTIMAL, Evidence
from bylot_paper.report import paper_tables
from bylot_paper.report.summary import name_data

PAPER_EXPERIMENTS = ("sweep", "crowd")
"""The experiments that are the paper's."""

LOOSER_THRESHOLD = 0.98
"""Another threshold for what is near-optimal, of which the report says what it would change."""

PAPER_CAPTIONS = {
    "sweep": (
        "Regret of OMD and its distance from the limits as updates go by",
        "The paper's Figure 1. Solid with markers: against the true constrained optimum in "
        "hindsight; dotted: against OMD's own last policy, as the paper does. Axes are logarithmic "
        "but linear near 0. The dashed c/√n goes through the tight curve at n = 10.",
    ),
    "crowd": (
        "Mean reward and share of feasible seeds of the policies at the levels of limits",
        "The paper's Figure 2. Left: reward; the bar across a level is the true optimum under its "
        "limits. Right: seeds within all limits with no tolerance. A policy that picks five "
        "different workers, or that breaks limits, can earn more than the optimum, which is over "
        "draws with replacement that keep them.",
    ),
    "rolling": (
        "Rolling mean reward of the policies over the rounds at tight and loose limits",
        "The paper's Figure 3. MoE and Random are left out as there.",
    ),
}

PAPER_NOTES = [
    "An update is a batch of 10 rounds, so the clock n = t/10 ends at a tenth of the rounds: at "
    "1,000 in the paper's runs, where the text says 10,000.",
    "The rolling window is a twentieth of the rounds: in the paper's runs 500, as the text has it; "
    "a caption says 5,000.",
    "R1 is reported both ways: against the policy that OMD ended with (the paper's stand-in, with "
    "its exact expectation instead of 200 draws) and against the true optimum, with a certificate.",
    "Feasible means that the mean realised cost of the whole run is within every limit with no "
    "tolerance; 0.001 and 0.01 are reported beside it. With no limits every run is feasible.",
    "The limit on workload is 5 times the mean workload of the pool of 50, plus the margin.",
    "The duals of CBwK and TS-BwK move on the running mean of the cost, as written; moving on the "
    "cost of the round is a variant.",
    "OMD averages the gradients of a batch, subtracts the running mean reward, counts a worker "
    "drawn twice twice, and moves its dual every round.",
    "Settings are the paper's, which speak of raw rewards of 0 to N. On a limit that binds, the "
    "variants whose dual moves on the cost of the round hold the mean at the bound only up to the "
    "dual's size over the rounds: a hair decides whether such a run is feasible at tolerance 0.",
    "The ten experts of a pool are its most accurate workers; of equals, those with the lower id.",
    "MoE's dual moves on the running mean of the cost too.",
    "A skill of exactly 0 or 1 has no noise. In the regime environment the mean skill of 5 fresh "
    "workers is multiplied by 0.2 in each of 10 blocks, the first included.",
    "Greedy and CUCB credit the reward of a team to all its members, so that the order of the "
    "warm-up, a random one per seed, decides much of what they do.",
    "From equal shares about one expert per round is drawn, so the cost cannot begin above a cap "
    "of 2; costs do not depend on N; and without a binding limit CBwK is CUCB and TS-BwK is TS. "
    "Sentences that say otherwise are measured all the same.",
]


def build_paper_section(
    evidence: Evidence,
    rows: Sequence[JudgedClaim],
    others: Sequence[Reading],
    loose: Sequence[str],
    drawn: Mapping[str, Sequence[Path]],
) -> list[Block]:
    """What is said of the paper's experiments, as far as the records go."""
    return [
        Paragraph(count_verdicts(rows, evidence.run)),
        Heading("Limits"),
        paper_tables.tabulate_levels(evidence.groups),
        Heading("Figures"),
        *(
            block
            for name in PAPER_CAPTIONS
            for block in build_paper_figure(name, drawn.get(name, []), evidence.run)
        ),
        Heading("Sentence by sentence"),
        *build_verdicts(rows, evidence),
        Paragraph(describe_threshold(loose)),
        *build_readings(others),
        Heading("The numbers behind the figures"),
        *build_number_tables(evidence),
        Heading("How the paper was read"),
        Paragraph("Where the text is silent or contradicts itself, this is what was done."),
        Bullets(PAPER_NOTES),
    ]


def make_report_title(run: RunManifest, of_paper: bool = True, past: bool = True) -> str:
    """Of the whole report, which may have nothing of the paper's, nor of what is past it."""
    mark = "SYNTHETIC: " if is_synthetic(run) else ""
    if of_paper:
        return f"{mark}The experiments of Multinomial Subset Routing, run again"
    if past:
        return f"{mark}Policies past Multinomial Subset Routing"
    return f"{mark}All policies in all worlds, and the default"


def build_opening(
    run: RunManifest,
    groups: RecordGroups,
    core_seconds: float | None,
    name: str,
    of_paper: bool = True,
) -> list[Block]:
    """On what data, and how much of it."""
    blocks: list[Block] = [Heading(name, 1)]
    if is_synthetic(run):
        blocks.append(
            Banner(
                "SYNTHETIC data: the crowd is made up. Every number, figure and verdict below is "
                "about it, not about the TREC workers of the paper."
            )
        )
    notes = list_run_differences(run)
    for experiment in grid.GRIDS:
        notes += describe_missing(groups, experiment, run)
    blocks += [Banner(note) for note in notes if not note.startswith("SYNTHETIC")]
    digest = str(run.get("data", {}).get("digest", "unknown"))[:16]
    facts = [f"Data: {name_data(run)}, digest {digest}; code {run.get('code', 'unknown')}."]
    rounds = f"{run['rounds']:,}" if "rounds" in run else "Unknown"
    facts.append(f"{rounds} rounds a run; window {run.get('window', '?')}.")
    for experiment, usual in grid.DEFAULT_SEED_COUNTS.items():
        found = sum(len(groups[key]) for key in groups if key.experiment == experiment)
        seeds, wanted = (
            format_seed_count(groups.seeds(experiment)),
            len(list_complete_cells(experiment, usual, run)),
        )
        whose = "the paper's" if experiment in PAPER_EXPERIMENTS else "in all"
        if found or (of_paper and experiment in PAPER_EXPERIMENTS):
            facts.append(f"{experiment}: {found:,} cells ({whose}: {wanted:,}), {seeds}.")
    if core_seconds is not None:
        facts.append(
            f"{core_seconds:,.1f} core-seconds of work in the last run that computed anything."
        )
    return [*blocks, Bullets(facts)]


def count_verdicts(rows: Sequence[JudgedClaim], run: RunManifest) -> str:
    """How the verdicts fell."""
    counts = Counter(row.verdict for row in rows)
    about = ""
    if describe_other_data(run):
        about = f" (judged on the {name_data(run)} crowd, which is not the paper's)"
    fell = f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[UNKNOWN]} cannot be tested"
    return f"Of {len(rows)} statements of the paper's results{about}, {fell}."


def build_paper_figure(name: str, paths: Sequence[Path], run: RunManifest) -> list[Block]:
    """A figure, or why there is none."""
    alt, caption = PAPER_CAPTIONS[name]
    if not paths:
        return [Paragraph(f"{alt}: no figure, as the records hold no such cells.")]
    png, svg = paths
    mark = "SYNTHETIC. " if is_synthetic(run) else ""
    return [Figure(png, svg, mark + alt, mark + caption)]


def build_number_tables(evidence: Evidence) -> list[Block]:
    """All tables that the records can fill."""
    groups = evidence.groups
    found = [
        paper_tables.tabulate_decay(groups),
        *(
            paper_tables.tabulate_comparison(groups, environment)
            for environment in ENVIRONMENT_LABELS
        ),
        paper_tables.tabulate_theorems(groups),
    ]
    filled: list[Block] = [table for table in found if table is not None]
    note = (
        "The theorems speak of the plain algorithm (no batches, no baseline, its own step) and of "
        "expected regret; their right-hand sides are given for scale, in the same units."
    )
    return [*filled, Paragraph(note)] if filled else [Paragraph("The records are empty.")]


def build_verdicts(rows: Sequence[JudgedClaim], evidence: Evidence) -> list[Block]:
    """Every claim by section, and those that cannot be tested in short."""
    tested = [row for row in rows if row.verdict != UNKNOWN]
    sections = list(dict.fromkeys(row.section for row in tested))
    blocks: list[Block] = [
        Paragraph(
            "Each sentence is in our words, with the rule that judges it beside it. A comparison "
            "of two policies is over the same seeds and needs more than two standard errors. "
            "Sentences that only describe a figure or repeat another are left out."
        ),
        Paragraph(count_verdicts(rows, evidence.run)),
    ]
    for section in sections:
        blocks += [Heading(f"Section {section}", 3)]
        blocks += [Verdicts([row for row in tested if row.section == section])]
    if len(tested) < len(rows):
        head = ("claim", "why")
        untested = [(row.id, row.measured) for row in rows if row.verdict == UNKNOWN]
        blocks += [Heading("Cannot be tested", 3)]
        blocks += [TableBlock("What these records say nothing about", head, untested, words=2)]
    return blocks


def describe_threshold(loose: Sequence[str]) -> str:
    """What hangs on how near the optimum is near."""
    change = f"these verdicts would change: {', '.join(loose)}" if loose else "nothing would change"
    return f"Near-optimal means {NEAR_OPTIMAL:.0%} of the true optimum here; at {LOOSER_THRESHOLD:.0%}, {change}."


def build_readings(others: Sequence[Reading]) -> list[Block]:
    """What would change if the paper were read differently."""
    if not others:
        return []
    head = ("variant", "claim", "as read here", "as the variant", "measured")
    rows = [
        (one.variant, one.claim, one.usual, one.other, one.measured)
        for one in others
        if one.usual != one.other
    ]
    used = [
        variant for variant in READING_VARIANTS if any(one.variant == variant for one in others)
    ]
    table = TableBlock(
        "Verdicts that another reading of the paper would change", head, rows, words=5
    )
    return [
        Heading("Other readings"),
        Paragraph(f"{len(rows)} of {len(others)} verdicts on feasibility would change."),
        Bullets([f"{variant}: {READING_VARIANTS[variant][1]}." for variant in used]),
        *([table] if rows else []),
    ]
