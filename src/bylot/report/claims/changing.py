"""Claims of 6.3 on the regime-switching environment. Nothing of that paragraph is left out."""

from functools import partial

from bylot.plots.groups import crowd
from bylot.plots.rolling import SHOWN
from bylot.report.claims.panel import (
    AWARE,
    BOTH,
    DUAL,
    PERSISTENT,
    TWO,
    always,
    gaps,
    listed,
    name,
    reward,
    share_above,
)
from bylot.report.claims.registry import Finding, claim
from bylot.report.evidence import Evidence, Seeds, mean, minus, paired

SECTION = "6.3 regime"
MOST, SIMILAR = 0.5, 0.02


@claim(
    "regime-advantage",
    SECTION,
    "OMD's lead is larger in the regime-switching environment.",
    f"Under tight limits, OMD's reward less the average of CBwK's and TS-BwK's is larger in the "
    f"regime than in the stochastic environment by {TWO}.",
)
def advantage(evidence: Evidence) -> Finding:
    """Lead over the two rivals in both environments."""

    def lead(world: str) -> Seeds:
        ours = reward(evidence, world, "tight", "omd")
        first, second = (minus(ours, reward(evidence, world, "tight", one)) for one in DUAL)
        return {seed: (first[seed] + second[seed]) / 2 for seed in first.keys() & second.keys()}

    leads = {world: lead(world) for world in BOTH}
    gap = paired(leads["regime"], leads["stochastic"])
    numbers = {world: mean(one) for world, one in leads.items()}
    text = listed({world: f"{value:+.4f}" for world, value in numbers.items()})
    return Finding(gap.clear, f"lead: {text}; difference {gap}", numbers)


def most(level: str, evidence: Evidence) -> Finding:
    """Share of the rounds at which OMD is above both rivals."""
    ours = crowd("regime", level, "omd")
    shares = {
        name(rival): share_above(evidence, ours, [crowd("regime", level, rival)]) for rival in DUAL
    }
    together = share_above(evidence, ours, [crowd("regime", level, rival) for rival in DUAL])
    text = listed({rival: f"{value:.0%}" for rival, value in shares.items()})
    holds = together > MOST
    return Finding(holds, f"above both at {together:.0%}; {text}", {"both": together, **shares})


for strictness in ("tight", "loose"):
    claim(
        f"regime-{strictness}-above",
        SECTION,
        f"In the regime-switching environment under {strictness} limits OMD earns more than the "
        f"others that know of limits, most of the time.",
        f"At more than {MOST:.0%} of the sampled rounds (full window) its mean rolling reward is "
        f"above those of CBwK and TS-BwK both.",
    )(partial(most, strictness))


@claim(
    "regime-omd-feasible",
    SECTION,
    "Meanwhile OMD stays fully feasible.",
    "In the regime environment every seed of OMD keeps all limits, with no tolerance, under tight "
    "and under loose limits.",
    feasibility=True,
)
def regime_feasible(evidence: Evidence) -> Finding:
    """Seeds within all limits."""
    keys = [crowd("regime", level, "omd") for level in ("tight", "loose")]
    shares = {key.level: evidence.feasible(key) for key in keys}
    numbers = {level: share.value for level, share in shares.items()}
    return Finding(all(map(always, shares.values())), listed({**shares}), numbers)


@claim(
    "regime-cbwk-gap",
    SECTION,
    "In the regime-switching environment CBwK stays behind for good.",
    f"At {PERSISTENT:.0%} of the sampled rounds or more (full window) its mean rolling reward is "
    f"below OMD's, under tight and under loose limits.",
)
def cbwk_gap(evidence: Evidence) -> Finding:
    """Share of the rounds at which OMD is above."""
    shares = {
        level: share_above(
            evidence, crowd("regime", level, "omd"), [crowd("regime", level, "cbwk")]
        )
        for level in ("tight", "loose")
    }
    text = listed({level: f"{value:.0%}" for level, value in shares.items()})
    return Finding(min(shares.values()) >= PERSISTENT, f"share of rounds: {text}", shares)


@claim(
    "regime-tsbwk-sensitive",
    SECTION,
    "TS-BwK loses more than OMD when the world changes.",
    f"Under tight limits its mean reward falls more from the stochastic to the regime environment "
    f"than OMD's, by {TWO}.",
)
def sensitive(evidence: Evidence) -> Finding:
    """Falls in reward."""
    falls = {
        policy: minus(*(reward(evidence, world, "tight", policy) for world in BOTH))
        for policy in ("ts-bwk", "omd")
    }
    gap = paired(falls["ts-bwk"], falls["omd"])
    numbers = {policy: mean(fall) for policy, fall in falls.items()}
    text = listed({name(policy): f"{value:+.4f}" for policy, value in numbers.items()})
    return Finding(gap.clear, f"falls: {text}; difference {gap}", numbers)


@claim(
    "regime-tsbwk-lower-reward",
    SECTION,
    "In the regime-switching environment TS-BwK therefore earns less under tight limits.",
    f"Its mean reward there is below OMD's by {TWO}.",
)
def lower_reward(evidence: Evidence) -> Finding:
    """What OMD earns more."""
    gap = paired(*(reward(evidence, "regime", "tight", one) for one in ("omd", "ts-bwk")))
    return Finding(gap.clear, f"OMD less TS-BwK {gap}", {"difference": gap.mean})


@claim(
    "regime-tsbwk-less-feasible",
    SECTION,
    "In the regime-switching environment TS-BwK therefore meets the tight limits less often.",
    f"Its share of feasible seeds under tight limits is lower in the regime than in the stochastic "
    f"environment by {TWO}.",
    feasibility=True,
)
def less_feasible(evidence: Evidence) -> Finding:
    """Stochastic less regime."""
    calm, changing = (evidence.kept(crowd(world, "tight", "ts-bwk")) for world in BOTH)
    gap = paired(calm, changing)
    text = f"{mean(calm):.0%} and {mean(changing):.0%}, difference {gap}"
    return Finding(gap.clear, text, {"stochastic": mean(calm), "regime": mean(changing)})


@claim(
    "loose-similar",
    SECTION,
    "Under loose limits all end at much the same reward.",
    f"In the regime environment the mean rewards of the last tenth of the rounds of the six "
    f"policies that the figure shows are within {SIMILAR:.0%} of the largest of them.",
)
def similar(evidence: Evidence) -> Finding:
    """Late rewards."""
    late = {
        policy: mean(evidence.values(crowd("regime", "loose", policy), "reward_late"))
        for policy in SHOWN
    }
    apart = 1 - min(late.values()) / max(late.values())
    text = listed({name(policy): f"{value:.3f}" for policy, value in late.items()})
    return Finding(apart <= SIMILAR, f"{apart:.1%} apart: {text}", {"reward_late": late})


@claim(
    "loose-omd-strongest",
    SECTION,
    "Under loose limits OMD is still the best of those that know of limits.",
    f"In the regime environment its mean reward is above those of TS-BwK, CBwK and MoE, each by "
    f"{TWO}.",
)
def strongest(evidence: Evidence) -> Finding:
    """What OMD earns more."""
    ours = reward(evidence, "regime", "loose", "omd")
    rivals = [policy for policy in AWARE if policy != "omd"]
    found = {name(one): paired(ours, reward(evidence, "regime", "loose", one)) for one in rivals}
    return Finding(*gaps(found))
