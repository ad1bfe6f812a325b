"""What the report says, in which order."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bylot import experiments
from bylot.plots.groups import Groups, Run, counted, synthetic
from bylot.plots.style import ENVIRONMENTS
from bylot.report import tables
from bylot.report.blocks import Banner, Block, Bullets, Figure, Heading, Table, Text, Verdicts
from bylot.report.claims import FAILS, HOLDS, UNKNOWN, Row
from bylot.report.claims.registry import missing, other_data, unlike, whole
from bylot.report.evidence import NEAR, Evidence
from bylot.report.readings import VARIANTS, Reading
from bylot.report.summary import data_name

PAPER = ("sweep", "crowd")
"""The experiments that are the paper's."""

LOOSER = 0.98
"""Another threshold for what is near-optimal, of which the report says what it would change."""

CAPTIONS = {
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

READING = [
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


def contents(
    evidence: Evidence,
    rows: Sequence[Row],
    others: Sequence[Reading],
    loose: Sequence[str],
    drawn: Mapping[str, Sequence[Path]],
) -> list[Block]:
    """What is said of the paper's experiments, as far as the records go."""
    return [
        Text(fallen(rows, evidence.run)),
        Heading("Limits"),
        tables.levels(evidence.groups),
        Heading("Figures"),
        *(block for name in CAPTIONS for block in figure(name, drawn.get(name, []), evidence.run)),
        Heading("Sentence by sentence"),
        *verdicts(rows, evidence),
        Text(threshold(loose)),
        *other_readings(others),
        Heading("The numbers behind the figures"),
        *numbers(evidence),
        Heading("How the paper was read"),
        Text("Where the text is silent or contradicts itself, this is what was done."),
        Bullets(READING),
    ]


def title(run: Run, of_paper: bool = True, past: bool = True) -> str:
    """Of the whole report, which may have nothing of the paper's, nor of what is past it."""
    mark = "SYNTHETIC: " if synthetic(run) else ""
    if of_paper:
        return f"{mark}The experiments of Multinomial Subset Routing, run again"
    if past:
        return f"{mark}Policies past Multinomial Subset Routing"
    return f"{mark}All policies in all worlds, and the default"


def opening(
    run: Run, groups: Groups, core_seconds: float | None, name: str, of_paper: bool = True
) -> list[Block]:
    """On what data, and how much of it."""
    blocks: list[Block] = [Heading(name, 1)]
    if synthetic(run):
        blocks.append(
            Banner(
                "SYNTHETIC data: the crowd is made up. Every number, figure and verdict below is "
                "about it, not about the TREC workers of the paper."
            )
        )
    notes = unlike(run)
    for experiment in experiments.GRIDS:
        notes += missing(groups, experiment, run)
    blocks += [Banner(note) for note in notes if not note.startswith("SYNTHETIC")]
    digest = str(run.get("data", {}).get("digest", "unknown"))[:16]
    facts = [f"Data: {data_name(run)}, digest {digest}; code {run.get('code', 'unknown')}."]
    rounds = f"{run['rounds']:,}" if "rounds" in run else "Unknown"
    facts.append(f"{rounds} rounds a run; window {run.get('window', '?')}.")
    for experiment, usual in experiments.SEEDS.items():
        found = sum(len(groups[key]) for key in groups if key.experiment == experiment)
        seeds, wanted = counted(groups.seeds(experiment)), len(whole(experiment, usual, run))
        whose = "the paper's" if experiment in PAPER else "in all"
        if found or (of_paper and experiment in PAPER):
            facts.append(f"{experiment}: {found:,} cells ({whose}: {wanted:,}), {seeds}.")
    if core_seconds is not None:
        facts.append(
            f"{core_seconds:,.1f} core-seconds of work in the last run that computed anything."
        )
    return [*blocks, Bullets(facts)]


def fallen(rows: Sequence[Row], run: Run) -> str:
    """How the verdicts fell."""
    counts = Counter(row.verdict for row in rows)
    about = ""
    if other_data(run):
        about = f" (judged on the {data_name(run)} crowd, which is not the paper's)"
    fell = f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[UNKNOWN]} cannot be tested"
    return f"Of {len(rows)} statements of the paper's results{about}, {fell}."


def figure(name: str, paths: Sequence[Path], run: Run) -> list[Block]:
    """A figure, or why there is none."""
    alt, caption = CAPTIONS[name]
    if not paths:
        return [Text(f"{alt}: no figure, as the records hold no such cells.")]
    png, svg = paths
    mark = "SYNTHETIC. " if synthetic(run) else ""
    return [Figure(png, svg, mark + alt, mark + caption)]


def numbers(evidence: Evidence) -> list[Block]:
    """All tables that the records can fill."""
    groups = evidence.groups
    found = [
        tables.decay(groups),
        *(tables.comparison(groups, environment) for environment in ENVIRONMENTS),
        tables.theorems(groups),
    ]
    filled: list[Block] = [table for table in found if table is not None]
    note = (
        "The theorems speak of the plain algorithm (no batches, no baseline, its own step) and of "
        "expected regret; their right-hand sides are given for scale, in the same units."
    )
    return [*filled, Text(note)] if filled else [Text("The records are empty.")]


def verdicts(rows: Sequence[Row], evidence: Evidence) -> list[Block]:
    """Every claim by section, and those that cannot be tested in short."""
    tested = [row for row in rows if row.verdict != UNKNOWN]
    sections = list(dict.fromkeys(row.section for row in tested))
    blocks: list[Block] = [
        Text(
            "Each sentence is in our words, with the rule that judges it beside it. A comparison "
            "of two policies is over the same seeds and needs more than two standard errors. "
            "Sentences that only describe a figure or repeat another are left out."
        ),
        Text(fallen(rows, evidence.run)),
    ]
    for section in sections:
        blocks += [Heading(f"Section {section}", 3)]
        blocks += [Verdicts([row for row in tested if row.section == section])]
    if len(tested) < len(rows):
        head = ("claim", "why")
        untested = [(row.id, row.measured) for row in rows if row.verdict == UNKNOWN]
        blocks += [Heading("Cannot be tested", 3)]
        blocks += [Table("What these records say nothing about", head, untested, words=2)]
    return blocks


def threshold(loose: Sequence[str]) -> str:
    """What hangs on how near the optimum is near."""
    change = f"these verdicts would change: {', '.join(loose)}" if loose else "nothing would change"
    return f"Near-optimal means {NEAR:.0%} of the true optimum here; at {LOOSER:.0%}, {change}."


def other_readings(others: Sequence[Reading]) -> list[Block]:
    """What would change if the paper were read differently."""
    if not others:
        return []
    head = ("variant", "claim", "as read here", "as the variant", "measured")
    rows = [
        (one.variant, one.claim, one.usual, one.other, one.measured)
        for one in others
        if one.changes
    ]
    used = [variant for variant in VARIANTS if any(one.variant == variant for one in others)]
    table = Table("Verdicts that another reading of the paper would change", head, rows, words=5)
    return [
        Heading("Other readings"),
        Text(f"{len(rows)} of {len(others)} verdicts on feasibility would change."),
        Bullets([f"{variant}: {VARIANTS[variant][1]}." for variant in used]),
        *([table] if rows else []),
    ]
