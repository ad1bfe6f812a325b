"""The part of the report that goes beyond the paper: checks and comparisons of our own policies.

A check is judged like a claim of the paper, but it is a requirement on our own policies.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bylot.reports.blocks import Block, Bullets, Heading, JudgedClaim, Paragraph
from bylot_paper.analysis import GroupKey, RecordGroups, RunManifest
from bylot_paper.claims import Claim, describe_missing, judge_claim, list_run_differences
from bylot_paper.claims.predicates import ClaimFinding, format_values
from bylot_paper.evidence import Evidence, RunShare, Untestable, paired_difference, seed_mean
from bylot_paper.plots.beyond import ABLATION_LABELS
from bylot_paper.plots.panels import ENVIRONMENT_LABELS
from bylot_paper.policy_settings import ABLATED_PARTS, BEYOND_POLICIES, GUARDED_POLICIES
from bylot_paper.report import beyond_tables as tables
from bylot_paper.report.beyond_tables import (
    HARD_CASES,
    SettingsSweep,
    ablation_keys,
    comparison_keys,
    has_groups,
    list_period_keys,
    mean_regret,
)
from bylot_paper.report.formatting import (
    TEXTS,
    build_figure,
    build_verdicts,
    count_verdicts,
    tabulate_refusals,
    tabulate_untested,
)


def build_beyond_section(
    cells: pl.DataFrame,
    run: RunManifest,
    checks: Sequence[JudgedClaim],
    figures: Mapping[str, Sequence[Path]],
) -> list[Block]:
    """Checks, then each topic with its figures, sentences and tables, as far as records go."""
    groups = RecordGroups(cells)
    sweeps = tables.collect_sweeps(groups)
    parts: list[tuple[str, list[str], list[str], list[Block]]] = [
        (
            "Regret and limits",
            ["beyond", "beyond-rolling", "beyond-regret"],
            [*describe_ranking(groups), *describe_saturation(groups)],
            tables.tabulate_policies_by_case(groups),
        ),
        ("Periods", ["beyond-periods"], describe_periods(groups), tables.tabulate_periods(groups)),
        (
            "Ablation",
            ["beyond-ablation"],
            describe_ablation(groups),
            tables.tabulate_ablation(groups),
        ),
        (
            "What a sweep over settings would have gained",
            [],
            describe_tuning(sweeps),
            tables.tabulate_settings(sweeps),
        ),
        ("Optima", [], [], tables.tabulate_optima(groups)),
    ]
    blocks: list[Block] = [
        Heading("Beyond the paper"),
        Paragraph(
            "This part is not about the paper: it compares our own policies with its best, also at "
            f"a harder level. {count_checks(checks)}"
        ),
        *build_verdicts(checks),
        *tabulate_untested("Cannot be tested", "check", checks),
    ]
    for title, names, sentences, filled in parts:
        if filled:
            blocks += [Heading(title, 3), *map(Paragraph, sentences)]
            for name in names:
                blocks += build_figure(name, figures[name], run)
            blocks += filled
    refused = tabulate_refusals(cells)
    such = "such runs are listed above and not counted" if refused else "none did here"
    note = f"A policy may refuse limits that it cannot guarantee in so few rounds; {such}."
    return [
        *blocks,
        *refused,
        Heading("How it was done", 3),
        Bullets([*TEXTS["notes"]["beyond"], note]),
    ]


def count_checks(checks: Sequence[JudgedClaim]) -> str:
    """How many checks hold."""
    return count_verdicts(checks, "checks of our own policies")


def describe_ranking(groups: RecordGroups) -> list[str]:
    """The policies by regret, and those that keep all limits in every run."""
    lost = {
        policy: mean_regret(groups, comparison_keys(policy))
        for policy in BEYOND_POLICIES
        if has_groups(groups, comparison_keys(policy))
    }
    if not lost:
        return []
    always = [
        policy
        for policy in lost
        if all((groups.values(key, "outside") <= 0).all() for key in comparison_keys(policy))
    ]
    ranked = ", ".join(f"{name} {lost[name]:.4f}" for name in sorted(lost, key=lost.__getitem__))
    kept = ", ".join(always) or "none"
    return [f"Mean regret over the eight cases: {ranked}. Within all limits in every run: {kept}."]


def describe_saturation(groups: RecordGroups) -> list[str]:
    """How near the optimum is to the largest reward, at the paper's levels and at stress."""
    keys = [key for key in groups if key.experiment == "beyond" and key.policy == "omd"]
    stress = [key for key in keys if key.level == "stress"]
    paper = [key for key in keys if key.level != "stress"]
    if not (stress and paper):
        return []

    def describe(name: str, some: Sequence[GroupKey]) -> str:
        best = [groups.values(key, "optimum").mean() / key.dimensions for key in some]
        even = [
            float((groups.values(key, "uniform") / groups.values(key, "optimum")).mean())
            for key in some
        ]
        return (
            f"{name} the optimum is {format_share_range(best)} of the largest possible reward, and "
            f"equal shares earn {format_share_range(even)} of the optimum"
        )

    levels = {"At the paper's levels": paper, "at stress": stress}
    return [f"{'; '.join(describe(name, some) for name, some in levels.items())}."]


def format_share_range(shares: Sequence[float]) -> str:
    """From the smallest to the largest.

    >>> format_share_range([0.9512, 0.9467]), format_share_range([0.9512, 0.9513])
    ('94.7% to 95.1%', '95.1%')
    """
    return " to ".join(dict.fromkeys(f"{end:.1%}" for end in (min(shares), max(shares))))


def format_change(change: float) -> str:
    """A difference with its sign; zero is positive.

    >>> format_change(0.01234), format_change(-0.00001)
    ('+0.0123', '+0.0000')
    """
    return f"{round(change, 4) + 0.0:+.4f}"


def describe_periods(groups: RecordGroups) -> list[str]:
    """Bad periods of each policy, and the regret that short periods cost the guarded ones."""
    bad = []
    for policy in BEYOND_POLICIES:
        if keys := list_period_keys(groups, policy):
            left, total = (
                sum(groups.values(key, column).sum() for key in keys)
                for column in ("bad_periods", "periods")
            )
            bad.append(f"{policy} {left:.0f} of {total:,.0f}")
    if not bad:
        return []
    sentences = [f"Periods outside a limit, all lengths and cases: {', '.join(bad)}."]
    costs = [
        f"{policy} {cost}" for policy in GUARDED_POLICIES if (cost := describe_cost(groups, policy))
    ]
    if costs:
        sentences.append(
            "Regret of short periods minus that of one period as long as the run: "
            f"{'; '.join(costs)}."
        )
    return sentences


def describe_cost(groups: RecordGroups, policy: str) -> str:
    """What each shorter period costs in regret, mean over cases."""
    by_length: dict[int, list[GroupKey]] = {}
    for key in list_period_keys(groups, policy):
        by_length.setdefault(key.period or 0, []).append(key)
    lost = {
        length: mean_regret(groups, keys)
        for length, keys in sorted(by_length.items())
        if len(keys) == len(HARD_CASES)
    }
    *short, longest = lost or [0]
    return ", ".join(f"{format_change(lost[n] - lost[longest])} at {n:,}" for n in short)


def describe_ablation(groups: RecordGroups) -> list[str]:
    """How regret and feasibility change without each part."""
    sentences = []
    for policy in GUARDED_POLICIES:
        if not has_groups(groups, ablation_keys(policy, "")):
            continue
        base = mean_regret(groups, ablation_keys(policy, ""))
        words = []
        for part, name in ABLATION_LABELS.items():
            keys = ablation_keys(policy, part)
            if part and has_groups(groups, keys):
                kept = np.concatenate([groups.values(key, "outside") <= 0 for key in keys])
                change = format_change(mean_regret(groups, keys) - base)
                words.append(f"{name} {change}, {kept.mean():.0%} feasible")
        if words:
            sentences.append(
                f"Change of {policy}'s regret ({base:.4f} if complete), and feasible runs: "
                f"{'; '.join(words)}."
            )
    return sentences


def describe_tuning(sweeps: Sequence[SettingsSweep]) -> list[str]:
    """What the best settings would have gained, and how much of that is hindsight."""
    if not sweeps:
        return []
    gains = [f"{one.policy} {one.gain:.4f} of {one.default:.4f}" for one in sweeps]
    elsewhere = [f"{one.policy} {format_change(one.gain_elsewhere)}" for one in sweeps]
    return [
        f"The best of these settings would have reduced the regret by: {', '.join(gains)}, chosen "
        f"on the seeds it is judged by. Chosen on all seeds but one and judged on that one: "
        f"{', '.join(elsewhere)}. Every other number here is for the one default."
    ]


REGRET_SHARE_LIMIT, REGRET_SHARE_AIM = 0.35, 0.15
"""Regret relative to OMD's: what is required, and what is aimed at."""


def pool_shares(evidence: Evidence, keys: list[GroupKey]) -> RunShare:
    """Feasible runs of several groups together."""
    shares = [evidence.feasible(key) for key in keys]
    return RunShare(sum(one.kept for one in shares), sum(one.runs for one in shares))


def judge_feasible(policy: str, evidence: Evidence) -> ClaimFinding:
    """Runs within all limits, of all and in the worst case."""
    keys = comparison_keys(policy)
    share, least = pool_shares(evidence, keys), min(evidence.feasible(key).value for key in keys)
    text = f"{share}; least in one case {least:.0%}"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "least": least})


def judge_regret(policy: str, limit: float, evidence: Evidence) -> ClaimFinding:
    """Regret over all cases relative to OMD's."""
    ours, theirs = (
        sum(seed_mean(evidence.values(key, "regret_true")) for key in keys) / len(keys)
        for keys in (comparison_keys(policy), comparison_keys("omd"))
    )
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, so no ratio to it exists")
    ratio = ours / theirs
    text = f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}"
    return ClaimFinding(ratio <= limit, text, {"ratio": ratio, "ours": ours, "omd": theirs})


def judge_beats_multinomial(evidence: Evidence) -> ClaimFinding:
    """Reward minus the optimum, and in how many runs it is above the proved bound."""
    gains, proved, runs = {}, 0, 0
    for environment in ENVIRONMENT_LABELS:
        key = GroupKey("beyond", environment, "stress", "distinct", 3)
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[environment] = paired_difference(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        runs += len(reward)
    text = f"reward minus the optimum: {format_values(gains)}; above the proved upper bound of all "
    text += f"multinomial policies in {proved} of {runs} runs"
    numbers = {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved}
    return ClaimFinding(all(gain.clear for gain in gains.values()), text, numbers)


def judge_periods(policy: str, evidence: Evidence) -> ClaimFinding:
    """Periods outside a limit, of all lengths."""
    keys = list_period_keys(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad, total = (
        sum(sum(evidence.values(key, column).values()) for key in keys)
        for column in ("bad_periods", "periods")
    )
    text = f"{bad:,.0f} of {total:,.0f} periods outside a limit"
    return ClaimFinding(bad == 0, text, {"bad": bad, "periods": total})


def judge_guard(evidence: Evidence) -> ClaimFinding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in ABLATED_PARTS if "guard" not in part)]
    keys = [key for name in GUARDED_POLICIES for part in parts for key in ablation_keys(name, part)]
    share = pool_shares(evidence, keys)
    worst = min(keys, key=lambda key: evidence.feasible(key).value)
    text = f"{share}; least {evidence.feasible(worst).value:.0%} "
    text += f"({worst.policy}, {worst.level} {worst.environment})"
    rounds = float(np.mean([seed_mean(evidence.values(key, "replaced")) for key in keys]))
    text += f"; {rounds:.1f} rounds of a run replaced on average"
    return ClaimFinding(share.value == 1, text, {"share": share.value, "replaced": rounds})


def list_checks() -> Iterator[Claim]:
    """All checks, in the order of the report."""
    for name in GUARDED_POLICIES:
        yield Claim(
            f"{name}-always-feasible",
            "beyond",
            f"{name} keeps every limit in every run of the comparison.",
            "All limits are kept, with no tolerance, in every seed of every level and environment.",
            partial(judge_feasible, name),
        )
        for suffix, limit, rule in (
            (
                "regret",
                REGRET_SHARE_LIMIT,
                f"Its regret against the best multinomial policy under exact costs, mean over the "
                f"eight cases, is at most {REGRET_SHARE_LIMIT} of OMD's.",
            ),
            ("regret-aim", REGRET_SHARE_AIM, f"As {name}-regret, with {REGRET_SHARE_AIM}."),
        ):
            says = f"{name} loses at most {limit} of what OMD loses."
            judge = partial(judge_regret, name, limit)
            yield Claim(f"{name}-{suffix}", "beyond", says, rule, judge)
    yield Claim(
        "distinct-beats-multinomial",
        "beyond",
        "At stress, asking different experts earns more than the best multinomial policy.",
        "At stress, mean regret of distinct against the best multinomial policy that was found is "
        "below 0 by more than two standard errors, in both environments.",
        judge_beats_multinomial,
    )
    for name in GUARDED_POLICIES:
        yield Claim(
            f"{name}-no-bad-period",
            "beyond",
            f"{name} keeps every limit in every period, whatever its length.",
            "No period's mean cost is outside a limit, with no tolerance.",
            partial(judge_periods, name),
        )
    yield Claim(
        "guard-suffices",
        "beyond",
        "The guard alone is enough: limits hold whatever other part is missing.",
        "Every run of the ablation that has the guard keeps all limits, with no tolerance.",
        judge_guard,
    )


CHECKS = {check.id: check for check in list_checks()}


def judge_checks(cells: pl.DataFrame, run: RunManifest) -> list[JudgedClaim]:
    """The verdict on every check."""
    evidence = Evidence(cells, run)
    notes = list_run_differences(run)
    for experiment in ("beyond", "ablation", "periods"):
        notes += describe_missing(evidence.groups, experiment, run)
    return [judge_claim(one, evidence, notes) for one in CHECKS.values()]
