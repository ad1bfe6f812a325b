"""Claims of 6.3 on how rewards move under tight limits, and of the third figure's caption.

Left out: that reward curves are to be read together with feasibility (advice), that OMD keeps the
tight limits in all runs (judged with the trade-off), and the caption's repetition that OMD ends
near the optimum (`tight-omd-converges` here).
"""

from functools import partial

import numpy as np

from bylot.numerics.jit import Floats, Ints
from bylot_paper.analysis import GroupKey, crowd_key
from bylot_paper.claims.common import (
    AWARE,
    BOTH,
    PERSISTENT,
    TWO,
    UNAWARE,
    compare_all,
    format_named,
    format_policy,
    full_window_curve,
    in_every_run,
    is_near_optimal,
    reward_by_seed,
    rolling_by_seed,
    share_above,
    uniform_note,
)
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.evidence import (
    NEAR_OPTIMAL,
    Evidence,
    PairedDifference,
    SeedValues,
    paired_difference,
    rank_correlation,
    seed_mean,
    subtract_by_seed,
)
from bylot_paper.plots.comparison import ROLLING_POLICIES

SECTION = "6.3 dynamics"
STEADY, COMPETITIVE, FEWER, START = 0.8, 0.01, 0.10, 0.1


def highest(policy: str, evidence: Evidence) -> ClaimFinding:
    """What a policy earns more than the four that it is said to beat."""
    others = [other for other in ROLLING_POLICIES if other not in ("ts", "greedy")]
    found = {
        f"{world} {other}": paired_difference(
            reward_by_seed(evidence, world, "tight", policy),
            reward_by_seed(evidence, world, "tight", other),
        )
        for world in BOTH
        for other in others
    }
    return ClaimFinding(*compare_all(found))


for top in ("ts", "greedy"):
    register_claim(
        f"tight-{top}-highest",
        SECTION,
        f"Under tight limits {format_policy(top)} is among the two that earn most.",
        f"Its mean reward is above those of OMD, TS-BwK, CBwK and CUCB, each by {TWO}, in both "
        f"environments.",
    )(partial(highest, top))


@register_claim(
    "unaware-upper-baselines",
    SECTION,
    "As TS and Greedy ignore the cap, they mark what could be had without it.",
    f"Under tight limits the mean reward of each is above the true constrained optimum by {TWO}, "
    f"in both environments.",
)
def upper(evidence: Evidence) -> ClaimFinding:
    """What they earn above the constrained optimum."""
    found = {
        f"{world} {policy}": paired_difference(
            reward_by_seed(evidence, world, "tight", policy),
            evidence.values(crowd_key(world, "tight", policy), "optimum"),
        )
        for world in BOTH
        for policy in ("ts", "greedy")
    }
    return ClaimFinding(*compare_all(found))


@register_claim(
    "tight-omd-sacrifices",
    SECTION,
    "Under tight limits OMD gives up reward at first, to hold back its use of experts.",
    f"Over the first tenth of the run its rolling reward is below its own with no limits, and its "
    f"experts per round are fewer, both by {TWO}, in both environments.",
)
def sacrifices(evidence: Evidence) -> ClaimFinding:
    """What it earns and uses more when nothing is limited."""
    found: dict[str, PairedDifference] = {}
    start = int(START * evidence.rounds)
    for world in BOTH:
        tight, free = crowd_key(world, "tight", "omd"), crowd_key(world, "none", "omd")
        used = [
            evidence.each(key, "curve_expert", lambda t, y: np.interp(start, t, y))
            for key in (free, tight)
        ]
        earned = [rolling_by_seed(evidence, key, 0.0, START) for key in (free, tight)]
        found |= {
            f"{world} reward": paired_difference(*earned),
            f"{world} experts": paired_difference(*used),
        }
    return ClaimFinding(*compare_all(found))


@register_claim(
    "tight-omd-improves",
    SECTION,
    "Under tight limits OMD gets better steadily.",
    f"Spearman's rank correlation of its mean rolling reward with the round, from the first full "
    f"window on, is at least {STEADY}, in both environments.",
)
def improves(evidence: Evidence) -> ClaimFinding:
    """Rank correlation with the round."""
    ranks = {
        world: rank_correlation(*full_window_curve(evidence, crowd_key(world, "tight", "omd")))
        for world in BOTH
    }
    text = format_named({world: f"{value:.2f}" for world, value in ranks.items()})
    return ClaimFinding(min(ranks.values()) >= STEADY, f"rank correlation: {text}", ranks)


@register_claim(
    "tight-omd-converges",
    SECTION,
    "Under tight limits OMD ends close to the best reward.",
    f"Over the last tenth of the rounds its mean reward is at least {NEAR_OPTIMAL:.0%} of the true "
    f"constrained optimum of the whole run, in both environments.",
)
def converges(evidence: Evidence) -> ClaimFinding:
    """Late reward in parts of the optimum."""
    keys = [crowd_key(world, "tight", "omd") for world in BOTH]
    ratios = {key.environment: evidence.ratio(key, "reward_late") for key in keys}
    text = format_named({world: f"{value:.1%}" for world, value in ratios.items()})
    text += f"; {uniform_note(evidence, keys)}"
    return ClaimFinding(min(ratios.values()) >= evidence.near, text, ratios)


@register_claim(
    "tight-tsbwk-competitive",
    SECTION,
    "Under tight limits TS-BwK earns about as much as OMD.",
    f"Their mean rewards are within {COMPETITIVE:.0%} of OMD's, in both environments.",
)
def competitive(evidence: Evidence) -> ClaimFinding:
    """Relative difference of the means."""
    parts = {}
    for world in BOTH:
        ours, theirs = (
            seed_mean(reward_by_seed(evidence, world, "tight", one)) for one in ("omd", "ts-bwk")
        )
        parts[world] = theirs / ours - 1
    text = format_named({world: f"{value:+.2%}" for world, value in parts.items()})
    holds = all(abs(value) <= COMPETITIVE for value in parts.values())
    return ClaimFinding(holds, f"TS-BwK against OMD: {text}", parts)


def arrival(evidence: Evidence, key: GroupKey) -> SeedValues:
    """First round with a full window whose rolling reward is near the optimum; the end if none."""
    best = evidence.values(key, "optimum")
    window = int(evidence.run.get("window", 0))
    curve = evidence.curve(key, "curve_reward")

    def first(t: Ints, y: Floats, target: float) -> float:
        there = t[(t >= window) & (y >= target)]
        return float(there[0] if there.size else evidence.rounds)

    rows = zip(curve.names, curve.seeds, strict=True)
    return {seed: first(curve.t, row, evidence.near * best[seed]) for seed, row in rows}


@register_claim(
    "tight-cbwk-slower",
    SECTION,
    "Under tight limits CBwK takes longer to get there than OMD and TS-BwK.",
    f"The first round at which a seed's rolling reward (full window) is at least {NEAR_OPTIMAL:.0%} of the "
    f"true constrained optimum (the end if none is) is later than for each of the two by {TWO}, in "
    f"both environments.",
)
def slower(evidence: Evidence) -> ClaimFinding:
    """Rounds that CBwK needs more."""
    found = {
        f"{world} {other}": paired_difference(
            arrival(evidence, crowd_key(world, "tight", "cbwk")),
            arrival(evidence, crowd_key(world, "tight", other)),
        )
        for world in BOTH
        for other in ("omd", "ts-bwk")
    }
    return ClaimFinding(*compare_all(found))


@register_claim(
    "tight-cbwk-below",
    SECTION,
    "Under tight limits CBwK is below OMD and TS-BwK all the way.",
    f"At {PERSISTENT:.0%} of the sampled rounds or more (full window), its mean rolling reward is "
    f"below both, in both environments.",
)
def below(evidence: Evidence) -> ClaimFinding:
    """Share of the rounds at which both others are above."""
    shares = {}
    for world in BOTH:
        ours = crowd_key(world, "tight", "cbwk")
        for other in ("omd", "ts-bwk"):
            upper = crowd_key(world, "tight", other)
            shares[f"{world} under {format_policy(other)}"] = share_above(evidence, upper, [ours])
    text = format_named({key: f"{value:.0%}" for key, value in shares.items()})
    return ClaimFinding(min(shares.values()) >= PERSISTENT, f"share of rounds: {text}", shares)


@register_claim(
    "tight-tsbwk-fewer",
    SECTION,
    "Under tight limits TS-BwK is feasible in far fewer runs than OMD.",
    f"Over both environments its share of feasible seeds is lower by at least {FEWER:.0%} of the "
    f"runs, and by {TWO}.",
    feasibility=True,
)
def fewer(evidence: Evidence) -> ClaimFinding:
    """OMD's share less TS-BwK's."""
    ours, theirs = (both_worlds(evidence, policy) for policy in ("omd", "ts-bwk"))
    gap = paired_difference(ours, theirs)
    numbers = {"omd": seed_mean(ours), "ts-bwk": seed_mean(theirs)}
    text = f"OMD {seed_mean(ours):.0%}, TS-BwK {seed_mean(theirs):.0%}, difference {gap}"
    return ClaimFinding(gap.clear and gap.mean >= FEWER - 1e-9, text, numbers)


def both_worlds(evidence: Evidence, policy: str) -> SeedValues:
    """Feasible or not, of the seeds of both environments, under tight limits."""
    calm, changing = (evidence.kept(crowd_key(world, "tight", policy)) for world in BOTH)
    return {2 * seed: kept for seed, kept in calm.items()} | {
        2 * seed + 1: kept for seed, kept in changing.items()
    }


@register_claim(
    "tight-tsbwk-fewer-regime",
    SECTION,
    "That lead of OMD in feasible runs is widest in the regime-switching environment.",
    f"Under tight limits, OMD's share of feasible seeds less TS-BwK's is larger in the regime than "
    f"in the stochastic environment by {TWO}.",
    feasibility=True,
)
def fewer_regime(evidence: Evidence) -> ClaimFinding:
    """Lead in the regime environment less lead in the other."""
    leads = {
        world: subtract_by_seed(
            evidence.kept(crowd_key(world, "tight", "omd")),
            evidence.kept(crowd_key(world, "tight", "ts-bwk")),
        )
        for world in BOTH
    }
    gap = paired_difference(leads["regime"], leads["stochastic"])
    numbers = {world: seed_mean(lead) for world, lead in leads.items()}
    text = format_named({world: f"{value:+.0%}" for world, value in numbers.items()})
    return ClaimFinding(gap.clear, f"lead: {text}; difference {gap}", numbers)


@register_claim(
    "only-aware-both",
    SECTION,
    "Of the policies that know of limits, OMD alone pairs near-optimal reward with reliable "
    "feasibility.",
    f"Of OMD, TS-BwK, CBwK and MoE, OMD alone has, under tight limits and in both environments, a "
    f"mean reward of at least {NEAR_OPTIMAL:.0%} of the true constrained optimum and every seed within all "
    f"limits, with no tolerance.",
    feasibility=True,
)
def only_aware(evidence: Evidence) -> ClaimFinding:
    """Who does both under tight limits."""
    able = [
        policy
        for policy in AWARE
        if all(
            is_near_optimal(evidence, crowd_key(world, "tight", policy))
            and in_every_run(evidence.feasible(crowd_key(world, "tight", policy)))
            for world in BOTH
        )
    ]
    text = f"does both: {', '.join(map(format_policy, able)) or 'nobody'}"
    return ClaimFinding(able == ["omd"], text, {"both": able})


@register_claim(
    "tight-omd-starts-lower",
    "6.3 third caption",
    "Under tight limits OMD begins below the policies that know of no limits.",
    f"Over the first tenth of the run its rolling reward is below those of CUCB, TS and Greedy, "
    f"each by {TWO}, in both environments.",
)
def starts_lower(evidence: Evidence) -> ClaimFinding:
    """What the others earn more at the start."""
    found = {
        f"{world} {format_policy(other)}": paired_difference(
            rolling_by_seed(evidence, crowd_key(world, "tight", other), 0.0, START),
            rolling_by_seed(evidence, crowd_key(world, "tight", "omd"), 0.0, START),
        )
        for world in BOTH
        for other in UNAWARE
    }
    return ClaimFinding(*compare_all(found))


@register_claim(
    "tight-omd-feasible-throughout",
    "6.3 third caption",
    "Under tight limits OMD is feasible at all times.",
    "At every sampled round and in every seed its mean cost so far is within all limits (R2 is 0), "
    "in both environments.",
    feasibility=True,
)
def throughout(evidence: Evidence) -> ClaimFinding:
    """Share of rounds and seeds within the limits."""
    shares, last = {}, {}
    for world in BOTH:
        curve = evidence.curve(crowd_key(world, "tight", "omd"), "curve_r2")
        shares[world] = float((curve.seeds <= 0).mean())
        outside = np.flatnonzero((curve.seeds > 0).any(axis=0))
        last[world] = int(curve.t[outside[-1]]) if outside.size else 0
    text = format_named({world: f"{value:.1%}" for world, value in shares.items()})
    text += f"; outside in some seed up to round {max(last.values()):,}"
    return ClaimFinding(min(shares.values()) == 1.0, f"rounds and seeds within: {text}", shares)
