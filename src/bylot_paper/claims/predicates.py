"""The predicates that judge claims and checks, on the evidence and the cases they are about."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bylot.reports import PAPER_POLICY_STYLES
from bylot_paper import analysis, grid
from bylot_paper.claims.measures import (
    NO_VIOLATION,
    Evidence,
    PairedDifference,
    RunShare,
    SeedValues,
    Untestable,
    bump,
    mean_value,
    paired_difference,
    peak,
    require_update,
    seed_mean,
    share_above,
    subtract_by_seed,
)
from bylot_paper.scenarios import PAPER_LEVELS

Cases = Mapping[str, Sequence[analysis.GroupKey]]
"""Labels, and the groups of records that are measured under each."""
Measure = Callable[..., Any]
"""(evidence, *groups): a number, or the share of runs in which something is true."""
SeedMeasure = Callable[..., SeedValues]

POLICY_LABELS = {**{name: style.name for name, style in PAPER_POLICY_STYLES.items()}, "omd": "OMD"}


class Finding(NamedTuple):
    """What a predicate found; the verdict follows from `holds` alone."""

    holds: bool
    measured: str
    numbers: dict[str, Any]


def list_cases(
    experiment: str = "crowd",
    environments: Sequence[str] | None = None,
    levels: Sequence[str] = ("tight",),
    policies: Sequence[str] = ("omd",),
    dimensions: Sequence[int] | None = None,
    versus: Sequence[str] | None = None,
    versus_all: Sequence[str] = (),
    within: Sequence[str] = (),
    label: str = "{}",
) -> dict[str, list[analysis.GroupKey]]:
    """All combinations of the given fields, labelled by those that vary.

    versus:     rivals; each combination is paired with each of them
    versus_all: rivals that are all measured together with each combination
    within:     fields whose values are measured together, in one case
    label:      how a policy is labelled, "{}" by its id, "{name}" as people write it

    >>> cases = list_cases(policies=("omd", "ts"), within=("environment",))
    >>> {label: [key.environment for key in keys] for label, keys in cases.items()}
    {'omd': ['stochastic', 'regime'], 'ts': ['stochastic', 'regime']}
    """
    sweep = experiment == "sweep"
    fields: dict[str, Sequence[Any]] = {
        "dimensions": dimensions or ((3, 5) if sweep else (3,)),
        "environment": environments or (("stochastic",) if sweep else grid.CROWD_ENVIRONMENTS),
        "level": levels,
        "policy": policies,
        "rival": versus or [""],
    }
    shown = [name for name, values in fields.items() if len(values) > 1 and name not in within]
    cases: dict[str, list[analysis.GroupKey]] = {}
    for values in product(*fields.values()):
        one = dict(zip(fields, values, strict=True))
        words = {**one, "dimensions": f"N={one['dimensions']}"}
        for role in ("policy", "rival"):
            words[role] = label.format(one[role], name=POLICY_LABELS.get(one[role], ""))
        rivals = [one.pop("rival")] if versus else versus_all
        key = analysis.GroupKey(
            experiment, one["environment"], one["level"], one["policy"], one["dimensions"]
        )
        case = cases.setdefault(" ".join(words[name] for name in shown), [])
        case += [key, *(key._replace(policy=rival) for rival in rivals)]
    return cases


def format_values(values: Mapping[str, object], form: str = "") -> str:
    """Labels with their values; a value without a label stands alone."""
    return ", ".join(
        f"{POLICY_LABELS.get(label, label)} {value:{form}}".strip()
        for label, value in values.items()
    )


def number_from(value: float | RunShare) -> float:
    return value.value if isinstance(value, RunShare) else value


def numbers_from(values: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Values for machines, under a name if one is given; an unlabelled one is a plain number."""
    plain = {label: number_from(value) for label, value in values.items()}
    if name is None:
        return plain
    return {name: plain[""] if list(plain) == [""] else plain}


def every(
    evidence: Evidence,
    cases: Cases,
    measure: Measure,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    above: float = -math.inf,
    near_optimal: bool = False,
    form: str = "",
    text: str = "{}",
    number: str | None = None,
    least_only: bool = False,
    also: Measure | None = None,
    also_number: str | None = None,
    uniform: bool = False,
) -> Finding:
    """The measure is within bounds in every case.

    least_only: report the smallest value only
    also:       another measure to report; the text has a second place for it
    uniform:    report what equal shares earn: near-optimal is a weak demand if they are near it
    """
    found = {label: measure(evidence, *keys) for label, keys in cases.items()}
    low = evidence.near if near_optimal else at_least
    said = [format_values(found, form)]
    numbers = numbers_from(found, number)
    if least_only:
        where = min(found, key=lambda label: number_from(found[label]))
        said = [f"least {found[where]:{form}} in {where}"]
        numbers = numbers if number else {"least": number_from(found[where])}
    if also:
        others = {label: also(evidence, *keys) for label, keys in cases.items()}
        said.append(format_values(others, ".5g"))
        numbers |= numbers_from(others, also_number) if also_number else {}
    return Finding(
        all(low <= one <= at_most and one > above for one in map(number_from, found.values())),
        text.format(*said) + (note_uniform(evidence, cases) if uniform else ""),
        numbers,
    )


def note_uniform(evidence: Evidence, cases: Cases) -> str:
    least = min(evidence.ratio(key, "uniform") for keys in cases.values() for key in keys)
    return f"; equal shares earn {least:.1%} of the optimum or more"


def clearly_larger(
    evidence: Evidence,
    cases: Cases,
    measure: SeedMeasure,
    *,
    other: SeedMeasure | None = None,
    columns: Mapping[str, str] | None = None,
    text: str = "{}",
    number: str | None = None,
) -> Finding:
    """In every case, the first group is larger than the last by more than two standard errors.

    other:   the measure of the last group, if it is a different one
    columns: of the measure by name, if there are several
    """
    settings = {name: {"column": column} for name, column in (columns or {}).items()} or {"": {}}
    found = {
        f"{label} {name}".strip(): paired_difference(
            measure(evidence, keys[0], **column), (other or measure)(evidence, keys[-1], **column)
        )
        for (label, keys), (name, column) in product(cases.items(), settings.items())
    }
    return Finding(
        all_clear(found),
        text.format(describe_differences(found)),
        numbers_from({label: gap.mean for label, gap in found.items()}, number),
    )


def all_clear(gaps: Mapping[str, PairedDifference]) -> bool:
    return all(gap.clear for gap in gaps.values())


def describe_differences(gaps: Mapping[str, PairedDifference]) -> str:
    """The only difference; or how many of them are clear, and the smallest."""
    if len(gaps) == 1:
        return str(*gaps.values())
    where = min(gaps, key=lambda label: gaps[label].mean)
    clear = sum(gap.clear for gap in gaps.values())
    return f"{clear} of {len(gaps)} clear; least {gaps[where]} for {where}"


def mean_clearly_larger(
    evidence: Evidence,
    cases: Cases,
    measure: SeedMeasure,
    *,
    larger: Sequence[str],
    than: str,
    by: float = 0.0,
    form: str,
    text: str = "{}",
    number: str | None = None,
    logarithms: bool = False,
) -> Finding:
    """The means of some cases exceed that of another by `by` and by two standard errors."""
    seeds = {label: measure(evidence, *keys) for label, keys in cases.items()}
    gaps = {label: paired_difference(seeds[label], seeds[than]) for label in larger}
    means = {label: seed_mean(values) for label, values in seeds.items()}
    if logarithms:
        means = {label: math.exp(value) for label, value in means.items()}
    named = {POLICY_LABELS.get(label, label): gap for label, gap in gaps.items()}
    apart = ("difference " if len(gaps) == 1 else "") + describe_differences(named)
    return Finding(
        all(gap.clear and gap.mean >= by - 1e-9 for gap in gaps.values()),
        f"{text.format(format_values(means, form))}; {apart}",
        numbers_from(means, number),
    )


def only_omd(evidence: Evidence, cases: Cases, measure: Measure, near_optimal: bool) -> Finding:
    """Of all cases, which are policies, OMD alone is at 100% (and near-optimal) in every group."""
    able = [
        policy
        for policy, keys in cases.items()
        if all(
            (not near_optimal or evidence.ratio(key) >= evidence.near)
            and measure(evidence, key).value == 1
            for key in keys
        )
    ]
    who = ", ".join(POLICY_LABELS[policy] for policy in able) or "no policy"
    if near_optimal:
        return Finding(able == ["omd"], f"does both: {who}", {"both": able})
    shares = {name: [measure(evidence, key).value for key in keys] for name, keys in cases.items()}
    return Finding(able == ["omd"], f"in all runs: {who}", {"share": shares})


def interval_meets(evidence: Evidence, cases: Cases, low: float, high: float) -> Finding:
    """Wilson's 95% interval of the share of feasible runs meets [low, high]."""
    [[key]] = cases.values()
    share = evidence.feasible(key)
    bottom, top = share.interval
    return Finding(bottom <= high and low <= top, str(share), {"share": share.value})


def never_falls(evidence: Evidence, cases: Cases) -> Finding:
    """The share of feasible runs never falls along the groups of a case."""
    shares = {name: [evidence.feasible(key).value for key in keys] for name, keys in cases.items()}
    falling = [label for label, along in shares.items() if along != sorted(along)]
    measured = f"{len(shares) - len(falling)} of {len(shares)} never fall"
    measured += f"; these do: {', '.join(falling)}" if falling else ""
    return Finding(not falling, measured, {"share": shares})


def close_together(
    evidence: Evidence, cases: Cases, measure: Measure, within: float, number: str
) -> Finding:
    """All cases are within a share of the largest."""
    found = {label: measure(evidence, *keys) for label, keys in cases.items()}
    apart = 1 - min(found.values()) / max(found.values())
    return Finding(
        apart <= within, f"{apart:.1%} apart: {format_values(found, '.3f')}", {number: found}
    )


def above_all(evidence: Evidence, cases: Cases, share: float) -> Finding:
    """The first group is above all the others at more than a share of the sampled rounds."""
    [[ours, *rivals]] = cases.values()
    found = {
        "both": share_above(evidence, ours, *rivals),
        **{POLICY_LABELS[one.policy]: share_above(evidence, ours, one) for one in rivals},
    }
    return Finding(found["both"] > share, f"rounds above {format_values(found, '.0%')}", found)


def largest_bump(evidence: Evidence, cases: Cases, column: str) -> Finding:
    """The bump of the last case is clearly larger than those with the same N or the same level."""
    *others, (ours,) = cases.values()
    first = bump(evidence, ours, column)
    seeds = {
        f"N={key.dimensions} {key.level}": bump(evidence, key, column)
        for (key,) in others
        if key.level == ours.level or key.dimensions == ours.dimensions
    }
    gaps = {label: paired_difference(first, other) for label, other in seeds.items()}
    said = ", ".join(f"over {label} {gap}" for label, gap in gaps.items())
    return Finding(
        all_clear(gaps),
        f"bump {seed_mean(first):.4f}; {said}",
        {"rise": seed_mean(first), "others": {x: seed_mean(other) for x, other in seeds.items()}},
    )


def bump_from_range(evidence: Evidence, cases: Cases, column: str) -> Finding:
    """The bump is clearly larger in the second case, but not per dimension of reward."""
    (low,), (high,) = cases.values()
    more, less = (bump(evidence, key, column) for key in (high, low))
    plain = paired_difference(more, less)
    scaled = paired_difference(
        {seed: value / high.dimensions for seed, value in more.items()},
        {seed: value / low.dimensions for seed, value in less.items()},
    )
    return Finding(
        plain.clear and not scaled.clear,
        f"difference {plain}, per dimension {scaled}",
        {"difference": plain.mean, "per_dimension": scaled.mean},
    )


def only_tight_violates(evidence: Evidence, cases: Cases) -> Finding:
    """The peak of R2 is above 0.01 at the tight level and below a quarter of that at the others."""
    peaks: dict[str, float] = {}
    holds = True
    for label, keys in cases.items():
        found = {key.level: peak(evidence, key, "curve_r2") for key in keys}
        tight, *others = found.values()
        peaks |= {f"{label} {level}": one for level, one in found.items()}
        holds = holds and tight > 0.01 and max(others) < tight / 4
    return Finding(holds, f"largest: {format_values(peaks, '.4f')}", {"largest": peaks})


def starts_above_cap(evidence: Evidence, cases: Cases) -> Finding:
    """The mean number of experts at the first update is above the cap."""
    starts = {
        label: seed_mean(evidence.each(key, "curve_expert", lambda t, y: y[0]))
        for label, (key,) in cases.items()
    }
    caps = {label: mean_value(evidence, key, "expert_bound") for label, (key,) in cases.items()}
    return Finding(
        all(starts[label] > caps[label] for label in starts),
        f"experts per round at n = 1: {format_values(starts, '.2f')}; "
        f"cap: {format_values(caps, 'g')}",
        {"start": starts, "cap": caps},
    )


def small_early_violation(evidence: Evidence, cases: Cases) -> Finding:
    """R2 of the medium level is above 0 up to n = 30, and always below the tight level's peak."""
    peaks: dict[str, float] = {}
    holds = True
    for label, (medium, tight) in cases.items():
        curve = evidence.curve(medium, "curve_r2")
        require_update(curve, 30)
        early = float(curve.mean[curve.n <= 30].max())
        largest = peak(evidence, tight, "curve_r2")
        peaks |= {f"{label} medium": early, f"{label} tight": largest}
        holds = holds and early > NO_VIOLATION and float(curve.mean.max()) < largest
    return Finding(holds, f"largest: {format_values(peaks, '.4f')}", {"largest": peaks})


def ignores_limits(evidence: Evidence, cases: Cases) -> Finding:
    """Limits do not change the use of experts, and most infeasible runs are above the cap."""
    moved, over, broken = 0.0, 0, 0
    for tight, free in cases.values():
        used = evidence.values(tight, "expert")
        change = subtract_by_seed(used, evidence.values(free, "expert"))
        moved = max(moved, *(abs(gap) for gap in change.values()))
        cap, kept = evidence.values(tight, "expert_bound"), evidence.kept(tight)
        infeasible = [seed for seed in kept if not kept[seed]]
        broken += len(infeasible)
        over += sum(used[seed] > cap[seed] for seed in infeasible)
    return Finding(
        moved <= 1e-9 and 2 * over > broken,
        f"largest change {moved:.4f}; above the cap in {over} of {broken} infeasible runs",
        {"moved": moved, "over_cap": over, "infeasible": broken},
    )


def near_optimal_and_feasible(evidence: Evidence, cases: Cases) -> Finding:
    """In every case the reward is near-optimal and every run is feasible."""
    ratio = min(evidence.ratio(key) for (key,) in cases.values())
    share = min((evidence.feasible(key) for (key,) in cases.values()), key=number_from)
    return Finding(
        ratio >= evidence.near and share.value == 1,
        f"least reward {ratio:.1%} of the optimum, least feasible {share}"
        f"{note_uniform(evidence, cases)}",
        {"ratio": ratio, "share": share.value},
    )


def range_larger_when_binding(evidence: Evidence, cases: Cases, aware: Sequence[str]) -> Finding:
    """Policies differ more in feasibility, and the aware ones in reward, where limits bind."""

    def span(keys: Sequence[analysis.GroupKey], level: str, column: str) -> float:
        some = [key for key in keys if key.level == level]
        if column == "feasible":
            values = [evidence.feasible(key).value for key in some]
        else:  # the others play the same at every level
            values = [mean_value(evidence, key, "reward") for key in some if key.policy in aware]
        return max(values) - min(values)

    excess = {}
    for environment, keys in cases.items():
        for column in ("feasible", "reward"):
            tight, medium, loose, none = (span(keys, level, column) for level in PAPER_LEVELS)
            excess[f"{environment} {column}"] = (tight + medium - loose - none) / 2
    return Finding(
        min(excess.values()) > 0,
        f"excess of the range: {format_values(excess, '+.3f')}",
        {"excess": excess},
    )


def pool_shares(
    evidence: Evidence, keys: Sequence[analysis.GroupKey]
) -> tuple[RunShare, analysis.GroupKey]:
    """Feasible runs of several groups together, and the group with the smallest share."""
    shares = {key: evidence.feasible(key) for key in keys}
    counts = zip(*shares.values(), strict=True)
    return RunShare(*map(sum, counts)), min(keys, key=lambda key: shares[key].value)


def always_feasible(evidence: Evidence, policy: str) -> Finding:
    """Runs within all limits, of all and in the worst case."""
    share, worst = pool_shares(evidence, analysis.comparison_keys(policy))
    least = evidence.feasible(worst).value
    return Finding(
        share.value == 1,
        f"{share}; least in one case {least:.0%}",
        {"share": share.value, "least": least},
    )


def small_regret(evidence: Evidence, policy: str, limit: float) -> Finding:
    """Regret over all cases relative to OMD's."""
    ours, theirs = (
        sum(mean_value(evidence, key, "regret_true") for key in keys) / len(keys)
        for keys in (analysis.comparison_keys(policy), analysis.comparison_keys("omd"))
    )
    if theirs <= 0:
        raise Untestable(f"OMD's mean regret is {theirs:.4f}, so no ratio to it exists")
    ratio = ours / theirs
    return Finding(
        ratio <= limit,
        f"{ratio:.2f} of OMD's: {ours:.4f} against {theirs:.4f}",
        {"ratio": ratio, "ours": ours, "omd": theirs},
    )


def beats_multinomial(evidence: Evidence, policy: str) -> Finding:
    """Reward minus the optimum, and in how many runs it is above the proved bound."""
    gains, proved, runs = {}, 0, 0
    for environment in grid.CROWD_ENVIRONMENTS:
        key = analysis.GroupKey("beyond", environment, "stress", policy, 3)
        reward, best = evidence.values(key, "reward"), evidence.values(key, "optimum")
        gap = evidence.values(key, "optimum_gap")
        gains[environment] = paired_difference(reward, best)
        proved += sum(reward[seed] > best[seed] + gap[seed] for seed in reward)
        runs += len(reward)
    return Finding(
        all_clear(gains),
        f"reward minus the optimum: {format_values(gains)}; above the proved upper bound of all "
        f"multinomial policies in {proved} of {runs} runs",
        {"gain": {name: gain.mean for name, gain in gains.items()}, "proved": proved},
    )


def no_bad_period(evidence: Evidence, policy: str) -> Finding:
    """Periods outside a limit, of all lengths."""
    keys = analysis.list_period_keys(evidence.groups, policy)
    if not keys:
        raise Untestable(f"no records of {policy} in periods")
    bad, total = (
        sum(sum(evidence.values(key, column).values()) for key in keys)
        for column in ("bad_periods", "periods")
    )
    return Finding(
        bad == 0,
        f"{bad:,.0f} of {total:,.0f} periods outside a limit",
        {"bad": bad, "periods": total},
    )


def guard_suffices(evidence: Evidence) -> Finding:
    """Feasible runs of the variants that have the guard."""
    parts = ["", *(part for part in grid.ABLATED_PARTS if "guard" not in part)]
    keys = [
        key
        for name, part in product(grid.GUARDED_POLICIES, parts)
        for key in analysis.ablation_keys(name, part)
    ]
    share, worst = pool_shares(evidence, keys)
    rounds = float(np.mean([mean_value(evidence, key, "replaced") for key in keys]))
    return Finding(
        share.value == 1,
        f"{share}; least {evidence.feasible(worst).value:.0%} ({worst.policy}, {worst.level} "
        f"{worst.environment}); {rounds:.1f} rounds of a run replaced on average",
        {"share": share.value, "replaced": rounds},
    )
