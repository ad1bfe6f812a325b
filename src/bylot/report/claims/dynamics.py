"""Claims of 6.3 on how rewards move under tight limits, and of the third figure's caption.

Left out: that reward curves are to be read together with feasibility (advice), that OMD keeps the
tight limits in all runs (judged with the trade-off), and the caption's repetition that OMD ends
near the optimum (`tight-omd-converges` here).
"""

from functools import partial

import numpy as np

from bylot.kernels.compile import Floats, Ints
from bylot.plots.groups import Key, crowd
from bylot.plots.rolling import SHOWN
from bylot.report.claims.panel import (
    AWARE,
    BOTH,
    PERSISTENT,
    TWO,
    UNAWARE,
    always,
    full,
    gaps,
    listed,
    name,
    near,
    reward,
    rolling,
    share_above,
    uniform_note,
)
from bylot.report.claims.registry import Finding, claim
from bylot.report.claims.shapes import order
from bylot.report.evidence import NEAR, Difference, Evidence, Seeds, mean, minus, paired

SECTION = "6.3 dynamics"
STEADY, COMPETITIVE, FEWER, START = 0.8, 0.01, 0.10, 0.1


def highest(policy: str, evidence: Evidence) -> Finding:
    """What a policy earns more than the four that it is said to beat."""
    others = [other for other in SHOWN if other not in ("ts", "greedy")]
    found = {
        f"{world} {other}": paired(
            reward(evidence, world, "tight", policy), reward(evidence, world, "tight", other)
        )
        for world in BOTH
        for other in others
    }
    return Finding(*gaps(found))


for top in ("ts", "greedy"):
    claim(
        f"tight-{top}-highest",
        SECTION,
        f"Under tight limits {name(top)} is among the two that earn most.",
        f"Its mean reward is above those of OMD, TS-BwK, CBwK and CUCB, each by {TWO}, in both "
        f"environments.",
    )(partial(highest, top))


@claim(
    "unaware-upper-baselines",
    SECTION,
    "As TS and Greedy ignore the cap, they mark what could be had without it.",
    f"Under tight limits the mean reward of each is above the true constrained optimum by {TWO}, "
    f"in both environments.",
)
def upper(evidence: Evidence) -> Finding:
    """What they earn above the constrained optimum."""
    found = {
        f"{world} {policy}": paired(
            reward(evidence, world, "tight", policy),
            evidence.values(crowd(world, "tight", policy), "optimum"),
        )
        for world in BOTH
        for policy in ("ts", "greedy")
    }
    return Finding(*gaps(found))


@claim(
    "tight-omd-sacrifices",
    SECTION,
    "Under tight limits OMD gives up reward at first, to hold back its use of experts.",
    f"Over the first tenth of the run its rolling reward is below its own with no limits, and its "
    f"experts per round are fewer, both by {TWO}, in both environments.",
)
def sacrifices(evidence: Evidence) -> Finding:
    """What it earns and uses more when nothing is limited."""
    found: dict[str, Difference] = {}
    start = int(START * evidence.rounds)
    for world in BOTH:
        tight, free = crowd(world, "tight", "omd"), crowd(world, "none", "omd")
        used = [
            evidence.each(key, "curve_expert", lambda t, y: np.interp(start, t, y))
            for key in (free, tight)
        ]
        earned = [rolling(evidence, key, 0.0, START) for key in (free, tight)]
        found |= {f"{world} reward": paired(*earned), f"{world} experts": paired(*used)}
    return Finding(*gaps(found))


@claim(
    "tight-omd-improves",
    SECTION,
    "Under tight limits OMD gets better steadily.",
    f"Spearman's rank correlation of its mean rolling reward with the round, from the first full "
    f"window on, is at least {STEADY}, in both environments.",
)
def improves(evidence: Evidence) -> Finding:
    """Rank correlation with the round."""
    ranks = {world: order(*full(evidence, crowd(world, "tight", "omd"))) for world in BOTH}
    text = listed({world: f"{value:.2f}" for world, value in ranks.items()})
    return Finding(min(ranks.values()) >= STEADY, f"rank correlation: {text}", ranks)


@claim(
    "tight-omd-converges",
    SECTION,
    "Under tight limits OMD ends close to the best reward.",
    f"Over the last tenth of the rounds its mean reward is at least {NEAR:.0%} of the true "
    f"constrained optimum of the whole run, in both environments.",
)
def converges(evidence: Evidence) -> Finding:
    """Late reward in parts of the optimum."""
    keys = [crowd(world, "tight", "omd") for world in BOTH]
    ratios = {key.environment: evidence.ratio(key, "reward_late") for key in keys}
    text = listed({world: f"{value:.1%}" for world, value in ratios.items()})
    text += f"; {uniform_note(evidence, keys)}"
    return Finding(min(ratios.values()) >= evidence.near, text, ratios)


@claim(
    "tight-tsbwk-competitive",
    SECTION,
    "Under tight limits TS-BwK earns about as much as OMD.",
    f"Their mean rewards are within {COMPETITIVE:.0%} of OMD's, in both environments.",
)
def competitive(evidence: Evidence) -> Finding:
    """Relative difference of the means."""
    parts = {}
    for world in BOTH:
        ours, theirs = (mean(reward(evidence, world, "tight", one)) for one in ("omd", "ts-bwk"))
        parts[world] = theirs / ours - 1
    text = listed({world: f"{value:+.2%}" for world, value in parts.items()})
    holds = all(abs(value) <= COMPETITIVE for value in parts.values())
    return Finding(holds, f"TS-BwK against OMD: {text}", parts)


def arrival(evidence: Evidence, key: Key) -> Seeds:
    """First round with a full window whose rolling reward is near the optimum; the end if none."""
    best = evidence.values(key, "optimum")
    window = int(evidence.run.get("window", 0))
    curve = evidence.curve(key, "curve_reward")

    def first(t: Ints, y: Floats, target: float) -> float:
        there = t[(t >= window) & (y >= target)]
        return float(there[0] if there.size else evidence.rounds)

    rows = zip(curve.names, curve.seeds, strict=True)
    return {seed: first(curve.t, row, evidence.near * best[seed]) for seed, row in rows}


@claim(
    "tight-cbwk-slower",
    SECTION,
    "Under tight limits CBwK takes longer to get there than OMD and TS-BwK.",
    f"The first round at which a seed's rolling reward (full window) is at least {NEAR:.0%} of the "
    f"true constrained optimum (the end if none is) is later than for each of the two by {TWO}, in "
    f"both environments.",
)
def slower(evidence: Evidence) -> Finding:
    """Rounds that CBwK needs more."""
    found = {
        f"{world} {other}": paired(
            arrival(evidence, crowd(world, "tight", "cbwk")),
            arrival(evidence, crowd(world, "tight", other)),
        )
        for world in BOTH
        for other in ("omd", "ts-bwk")
    }
    return Finding(*gaps(found))


@claim(
    "tight-cbwk-below",
    SECTION,
    "Under tight limits CBwK is below OMD and TS-BwK all the way.",
    f"At {PERSISTENT:.0%} of the sampled rounds or more (full window), its mean rolling reward is "
    f"below both, in both environments.",
)
def below(evidence: Evidence) -> Finding:
    """Share of the rounds at which both others are above."""
    shares = {}
    for world in BOTH:
        ours = crowd(world, "tight", "cbwk")
        for other in ("omd", "ts-bwk"):
            upper = crowd(world, "tight", other)
            shares[f"{world} under {name(other)}"] = share_above(evidence, upper, [ours])
    text = listed({key: f"{value:.0%}" for key, value in shares.items()})
    return Finding(min(shares.values()) >= PERSISTENT, f"share of rounds: {text}", shares)


@claim(
    "tight-tsbwk-fewer",
    SECTION,
    "Under tight limits TS-BwK is feasible in far fewer runs than OMD.",
    f"Over both environments its share of feasible seeds is lower by at least {FEWER:.0%} of the "
    f"runs, and by {TWO}.",
    feasibility=True,
)
def fewer(evidence: Evidence) -> Finding:
    """OMD's share less TS-BwK's."""
    ours, theirs = (both_worlds(evidence, policy) for policy in ("omd", "ts-bwk"))
    gap = paired(ours, theirs)
    numbers = {"omd": mean(ours), "ts-bwk": mean(theirs)}
    text = f"OMD {mean(ours):.0%}, TS-BwK {mean(theirs):.0%}, difference {gap}"
    return Finding(gap.clear and gap.mean >= FEWER - 1e-9, text, numbers)


def both_worlds(evidence: Evidence, policy: str) -> Seeds:
    """Feasible or not, of the seeds of both environments, under tight limits."""
    calm, changing = (evidence.kept(crowd(world, "tight", policy)) for world in BOTH)
    return {2 * seed: kept for seed, kept in calm.items()} | {
        2 * seed + 1: kept for seed, kept in changing.items()
    }


@claim(
    "tight-tsbwk-fewer-regime",
    SECTION,
    "That lead of OMD in feasible runs is widest in the regime-switching environment.",
    f"Under tight limits, OMD's share of feasible seeds less TS-BwK's is larger in the regime than "
    f"in the stochastic environment by {TWO}.",
    feasibility=True,
)
def fewer_regime(evidence: Evidence) -> Finding:
    """Lead in the regime environment less lead in the other."""
    leads = {
        world: minus(
            evidence.kept(crowd(world, "tight", "omd")),
            evidence.kept(crowd(world, "tight", "ts-bwk")),
        )
        for world in BOTH
    }
    gap = paired(leads["regime"], leads["stochastic"])
    numbers = {world: mean(lead) for world, lead in leads.items()}
    text = listed({world: f"{value:+.0%}" for world, value in numbers.items()})
    return Finding(gap.clear, f"lead: {text}; difference {gap}", numbers)


@claim(
    "only-aware-both",
    SECTION,
    "Of the policies that know of limits, OMD alone pairs near-optimal reward with reliable "
    "feasibility.",
    f"Of OMD, TS-BwK, CBwK and MoE, OMD alone has, under tight limits and in both environments, a "
    f"mean reward of at least {NEAR:.0%} of the true constrained optimum and every seed within all "
    f"limits, with no tolerance.",
    feasibility=True,
)
def only_aware(evidence: Evidence) -> Finding:
    """Who does both under tight limits."""
    able = [
        policy
        for policy in AWARE
        if all(
            near(evidence, crowd(world, "tight", policy))
            and always(evidence.feasible(crowd(world, "tight", policy)))
            for world in BOTH
        )
    ]
    text = f"does both: {', '.join(map(name, able)) or 'nobody'}"
    return Finding(able == ["omd"], text, {"both": able})


@claim(
    "tight-omd-starts-lower",
    "6.3 third caption",
    "Under tight limits OMD begins below the policies that know of no limits.",
    f"Over the first tenth of the run its rolling reward is below those of CUCB, TS and Greedy, "
    f"each by {TWO}, in both environments.",
)
def starts_lower(evidence: Evidence) -> Finding:
    """What the others earn more at the start."""
    found = {
        f"{world} {name(other)}": paired(
            rolling(evidence, crowd(world, "tight", other), 0.0, START),
            rolling(evidence, crowd(world, "tight", "omd"), 0.0, START),
        )
        for world in BOTH
        for other in UNAWARE
    }
    return Finding(*gaps(found))


@claim(
    "tight-omd-feasible-throughout",
    "6.3 third caption",
    "Under tight limits OMD is feasible at all times.",
    "At every sampled round and in every seed its mean cost so far is within all limits (R2 is 0), "
    "in both environments.",
    feasibility=True,
)
def throughout(evidence: Evidence) -> Finding:
    """Share of rounds and seeds within the limits."""
    shares, last = {}, {}
    for world in BOTH:
        curve = evidence.curve(crowd(world, "tight", "omd"), "curve_r2")
        shares[world] = float((curve.seeds <= 0).mean())
        outside = np.flatnonzero((curve.seeds > 0).any(axis=0))
        last[world] = int(curve.t[outside[-1]]) if outside.size else 0
    text = listed({world: f"{value:.1%}" for world, value in shares.items()})
    text += f"; outside in some seed up to round {max(last.values()):,}"
    return Finding(min(shares.values()) == 1.0, f"rounds and seeds within: {text}", shares)
