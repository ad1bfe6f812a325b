"""Claims of 6.3 on the regime-switching environment. Nothing of that paragraph is left out."""

from functools import partial

from bylot_paper.analysis import crowd_key
from bylot_paper.claims.common import (
    AWARE,
    BOTH,
    DUAL,
    PERSISTENT,
    TWO,
    compare_all,
    format_named,
    format_policy,
    in_every_run,
    reward_by_seed,
    share_above,
)
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.evidence import (
    Evidence,
    SeedValues,
    paired_difference,
    seed_mean,
    subtract_by_seed,
)
from bylot_paper.plots.comparison import ROLLING_POLICIES

SECTION = "6.3 regime"
MOST, SIMILAR = 0.5, 0.02


@register_claim(
    "regime-advantage",
    SECTION,
    "OMD's lead is larger in the regime-switching environment.",
    f"Under tight limits, OMD's reward less the average of CBwK's and TS-BwK's is larger in the "
    f"regime than in the stochastic environment by {TWO}.",
)
def advantage(evidence: Evidence) -> ClaimFinding:
    """Lead over the two rivals in both environments."""

    def lead(world: str) -> SeedValues:
        ours = reward_by_seed(evidence, world, "tight", "omd")
        first, second = (
            subtract_by_seed(ours, reward_by_seed(evidence, world, "tight", one)) for one in DUAL
        )
        return {seed: (first[seed] + second[seed]) / 2 for seed in first.keys() & second.keys()}

    leads = {world: lead(world) for world in BOTH}
    gap = paired_difference(leads["regime"], leads["stochastic"])
    numbers = {world: seed_mean(one) for world, one in leads.items()}
    text = format_named({world: f"{value:+.4f}" for world, value in numbers.items()})
    return ClaimFinding(gap.clear, f"lead: {text}; difference {gap}", numbers)


def most(level: str, evidence: Evidence) -> ClaimFinding:
    """Share of the rounds at which OMD is above both rivals."""
    ours = crowd_key("regime", level, "omd")
    shares = {
        format_policy(rival): share_above(evidence, ours, [crowd_key("regime", level, rival)])
        for rival in DUAL
    }
    together = share_above(evidence, ours, [crowd_key("regime", level, rival) for rival in DUAL])
    text = format_named({rival: f"{value:.0%}" for rival, value in shares.items()})
    holds = together > MOST
    return ClaimFinding(
        holds, f"above both at {together:.0%}; {text}", {"both": together, **shares}
    )


for strictness in ("tight", "loose"):
    register_claim(
        f"regime-{strictness}-above",
        SECTION,
        f"In the regime-switching environment under {strictness} limits OMD earns more than the "
        f"others that know of limits, most of the time.",
        f"At more than {MOST:.0%} of the sampled rounds (full window) its mean rolling reward is "
        f"above those of CBwK and TS-BwK both.",
    )(partial(most, strictness))


@register_claim(
    "regime-omd-feasible",
    SECTION,
    "Meanwhile OMD stays fully feasible.",
    "In the regime environment every seed of OMD keeps all limits, with no tolerance, under tight "
    "and under loose limits.",
    feasibility=True,
)
def regime_feasible(evidence: Evidence) -> ClaimFinding:
    """Seeds within all limits."""
    keys = [crowd_key("regime", level, "omd") for level in ("tight", "loose")]
    shares = {key.level: evidence.feasible(key) for key in keys}
    numbers = {level: share.value for level, share in shares.items()}
    return ClaimFinding(all(map(in_every_run, shares.values())), format_named({**shares}), numbers)


@register_claim(
    "regime-cbwk-gap",
    SECTION,
    "In the regime-switching environment CBwK stays behind for good.",
    f"At {PERSISTENT:.0%} of the sampled rounds or more (full window) its mean rolling reward is "
    f"below OMD's, under tight and under loose limits.",
)
def cbwk_gap(evidence: Evidence) -> ClaimFinding:
    """Share of the rounds at which OMD is above."""
    shares = {
        level: share_above(
            evidence, crowd_key("regime", level, "omd"), [crowd_key("regime", level, "cbwk")]
        )
        for level in ("tight", "loose")
    }
    text = format_named({level: f"{value:.0%}" for level, value in shares.items()})
    return ClaimFinding(min(shares.values()) >= PERSISTENT, f"share of rounds: {text}", shares)


@register_claim(
    "regime-tsbwk-sensitive",
    SECTION,
    "TS-BwK loses more than OMD when the world changes.",
    f"Under tight limits its mean reward falls more from the stochastic to the regime environment "
    f"than OMD's, by {TWO}.",
)
def sensitive(evidence: Evidence) -> ClaimFinding:
    """Falls in reward."""
    falls = {
        policy: subtract_by_seed(
            *(reward_by_seed(evidence, world, "tight", policy) for world in BOTH)
        )
        for policy in ("ts-bwk", "omd")
    }
    gap = paired_difference(falls["ts-bwk"], falls["omd"])
    numbers = {policy: seed_mean(fall) for policy, fall in falls.items()}
    text = format_named(
        {format_policy(policy): f"{value:+.4f}" for policy, value in numbers.items()}
    )
    return ClaimFinding(gap.clear, f"falls: {text}; difference {gap}", numbers)


@register_claim(
    "regime-tsbwk-lower-reward",
    SECTION,
    "In the regime-switching environment TS-BwK therefore earns less under tight limits.",
    f"Its mean reward there is below OMD's by {TWO}.",
)
def lower_reward(evidence: Evidence) -> ClaimFinding:
    """What OMD earns more."""
    gap = paired_difference(
        *(reward_by_seed(evidence, "regime", "tight", one) for one in ("omd", "ts-bwk"))
    )
    return ClaimFinding(gap.clear, f"OMD less TS-BwK {gap}", {"difference": gap.mean})


@register_claim(
    "regime-tsbwk-less-feasible",
    SECTION,
    "In the regime-switching environment TS-BwK therefore meets the tight limits less often.",
    f"Its share of feasible seeds under tight limits is lower in the regime than in the stochastic "
    f"environment by {TWO}.",
    feasibility=True,
)
def less_feasible(evidence: Evidence) -> ClaimFinding:
    """Stochastic less regime."""
    calm, changing = (evidence.kept(crowd_key(world, "tight", "ts-bwk")) for world in BOTH)
    gap = paired_difference(calm, changing)
    text = f"{seed_mean(calm):.0%} and {seed_mean(changing):.0%}, difference {gap}"
    return ClaimFinding(
        gap.clear, text, {"stochastic": seed_mean(calm), "regime": seed_mean(changing)}
    )


@register_claim(
    "loose-similar",
    SECTION,
    "Under loose limits all end at much the same reward.",
    f"In the regime environment the mean rewards of the last tenth of the rounds of the six "
    f"policies that the figure shows are within {SIMILAR:.0%} of the largest of them.",
)
def similar(evidence: Evidence) -> ClaimFinding:
    """Late rewards."""
    late = {
        policy: seed_mean(evidence.values(crowd_key("regime", "loose", policy), "reward_late"))
        for policy in ROLLING_POLICIES
    }
    apart = 1 - min(late.values()) / max(late.values())
    text = format_named({format_policy(policy): f"{value:.3f}" for policy, value in late.items()})
    return ClaimFinding(apart <= SIMILAR, f"{apart:.1%} apart: {text}", {"reward_late": late})


@register_claim(
    "loose-omd-strongest",
    SECTION,
    "Under loose limits OMD is still the best of those that know of limits.",
    f"In the regime environment its mean reward is above those of TS-BwK, CBwK and MoE, each by "
    f"{TWO}.",
)
def strongest(evidence: Evidence) -> ClaimFinding:
    """What OMD earns more."""
    ours = reward_by_seed(evidence, "regime", "loose", "omd")
    rivals = [policy for policy in AWARE if policy != "omd"]
    found = {
        format_policy(one): paired_difference(
            ours, reward_by_seed(evidence, "regime", "loose", one)
        )
        for one in rivals
    }
    return ClaimFinding(*compare_all(found))
