"""Claims of 6.3 on reward against kept limits, and of the second figure's caption.

Left out: what the figures report (descriptions), and later repetitions that OMD keeps the tight
limits in all runs (`tight-omd-stochastic` and `tight-omd-regime` here).
"""

from functools import partial

from bylot_paper.analysis import crowd_key
from bylot_paper.claims.common import (
    ALL,
    BOTH,
    DUAL,
    LIMITED,
    TWO,
    UNAWARE,
    compare_all,
    format_named,
    format_policy,
    in_every_run,
    is_near_optimal,
    spread_over_time,
    uniform_note,
)
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.evidence import (
    NEAR_OPTIMAL,
    Evidence,
    RunShare,
    paired_difference,
    seed_mean,
    subtract_by_seed,
)
from bylot_paper.plots.comparison import ROLLING_POLICIES

SECTION = "6.3 trade-off"
RARELY, NOISIER = 0.25, 1.5


@register_claim(
    "left-out-noisier",
    "6.3 figures",
    "MoE and Random vary so much more that they would hide the other six in the third figure.",
    f"The standard deviation of the rolling reward over the second half of the run, averaged over "
    f"seeds, is for MoE and for Random at least {NOISIER} times the largest of the other six, at "
    f"tight and loose limits and in both environments.",
)
def noisier(evidence: Evidence) -> ClaimFinding:
    """Spread over time against the largest of the six that are shown."""
    ratios = {}
    for environment in BOTH:
        for level in ("tight", "loose"):
            spreads = {
                policy: spread_over_time(evidence, crowd_key(environment, level, policy))
                for policy in (*ROLLING_POLICIES, "moe", "random")
            }
            largest = max(max(spreads[policy] for policy in ROLLING_POLICIES), 1e-12)
            for policy in ("moe", "random"):
                ratios[f"{environment} {level} {policy}"] = spreads[policy] / largest
    least = min(ratios, key=lambda one: ratios[one])
    text = f"least ratio {ratios[least]:.2f} ({least})"
    return ClaimFinding(ratios[least] >= NOISIER, text, {"ratio": ratios})


@register_claim(
    "omd-near-optimal",
    SECTION,
    "OMD earns nearly the best that the limits allow.",
    f"Its mean reward is at least {NEAR_OPTIMAL:.0%} of the true constrained optimum at the tight, medium "
    f"and loose levels of both environments.",
)
def omd_near(evidence: Evidence) -> ClaimFinding:
    """Reward in parts of the optimum."""
    keys = [crowd_key(environment, level, "omd") for environment in BOTH for level in LIMITED]
    ratios = {f"{key.environment} {key.level}": evidence.ratio(key) for key in keys}
    text = format_named({key: f"{value:.1%}" for key, value in ratios.items()})
    text += f"; {uniform_note(evidence, keys)}"
    return ClaimFinding(min(ratios.values()) >= evidence.near, text, {"ratio": ratios})


def within_cap(evidence: Evidence, environment: str, level: str, policy: str) -> RunShare:
    """In how many seeds the cap on experts was kept, whatever the workload."""
    key = crowd_key(environment, level, policy)
    slack = subtract_by_seed(evidence.values(key, "expert_bound"), evidence.values(key, "expert"))
    return RunShare(sum(left >= 0 for left in slack.values()), len(slack))


@register_claim(
    "omd-keeps-cap",
    SECTION,
    "OMD keeps the cap on experts reliably.",
    "In every seed its mean number of experts per round is at most the cap, at the tight, medium "
    "and loose levels of both environments.",
    feasibility=True,
)
def omd_cap(evidence: Evidence) -> ClaimFinding:
    """Seeds within the cap."""
    shares = {
        f"{environment} {level}": within_cap(evidence, environment, level, "omd")
        for environment in BOTH
        for level in LIMITED
    }
    numbers = {"share": {key: share.value for key, share in shares.items()}}
    return ClaimFinding(all(map(in_every_run, shares.values())), format_named({**shares}), numbers)


@register_claim(
    "only-omd-does-both",
    SECTION,
    "No other policy has both the near-optimal reward and the reliably kept cap.",
    f"Of the eight policies, OMD alone has a mean reward of at least {NEAR_OPTIMAL:.0%} of the optimum and "
    f"the cap on experts kept in every seed, at the tight, medium and loose levels of both "
    f"environments.",
    feasibility=True,
)
def only_omd(evidence: Evidence) -> ClaimFinding:
    """Who does both, everywhere."""
    both = [
        policy
        for policy in ALL
        if all(
            is_near_optimal(evidence, crowd_key(environment, level, policy))
            and in_every_run(within_cap(evidence, environment, level, policy))
            for environment in BOTH
            for level in LIMITED
        )
    ]
    text = f"does both: {', '.join(map(format_policy, both)) or 'nobody'}"
    return ClaimFinding(both == ["omd"], text, {"both": both})


def omd_tight(environment: str, evidence: Evidence) -> ClaimFinding:
    """Seeds within all limits."""
    share = evidence.feasible(crowd_key(environment, "tight", "omd"))
    return ClaimFinding(in_every_run(share), str(share), {"share": share.value})


for place in BOTH:
    register_claim(
        f"tight-omd-{place}",
        SECTION,
        f"Under tight limits OMD is feasible in every run of the {place} environment.",
        "All limits are kept, with no tolerance, in every seed.",
        feasibility=True,
    )(partial(omd_tight, place))


def about(
    policy: str, environment: str, low: float, high: float, evidence: Evidence
) -> ClaimFinding:
    """Does Wilson's interval meet the stated range?"""
    share = evidence.feasible(crowd_key(environment, "tight", policy))
    bottom, top = share.interval
    return ClaimFinding(bottom <= high and low <= top, str(share), {"share": share.value})


STATED = [
    ("ts-bwk", "stochastic", 0.95, 1.0),
    ("cbwk", "stochastic", 0.40, 0.40),
    ("ts-bwk", "regime", 0.85, 0.85),
    ("cbwk", "regime", 0.65, 0.65),
]
for rival, place, least, most in STATED:
    stated = f"{least:.0%}" if least == most else f"{least:.0%} to {most:.0%}"
    register_claim(
        f"tight-{rival}-{place}",
        SECTION,
        f"Under tight limits {format_policy(rival)} is feasible in some {stated} of the {place} runs.",
        f"Wilson's 95% interval of the share of seeds that keep all limits, with no tolerance, "
        f"contains {stated if least == most else f'a part of {stated}'}.",
        feasibility=True,
    )(partial(about, rival, place, least, most))


@register_claim(
    "omd-more-robust",
    SECTION,
    "A changing world costs OMD far less of its feasibility than CBwK and TS-BwK.",
    f"Under tight limits the share of feasible runs falls less from the stochastic to the regime "
    f"environment for OMD than for CBwK and for TS-BwK, each by {TWO}.",
    feasibility=True,
)
def robust(evidence: Evidence) -> ClaimFinding:
    """Falls of the rivals less the fall of OMD."""

    def fall(policy: str) -> dict[int, float]:
        calm, changing = (evidence.kept(crowd_key(world, "tight", policy)) for world in BOTH)
        return subtract_by_seed(calm, changing)

    falls = {policy: fall(policy) for policy in ("omd", *DUAL)}
    holds, text, _ = compare_all(
        {format_policy(rival): paired_difference(falls[rival], falls["omd"]) for rival in DUAL}
    )
    shares = {policy: seed_mean(seeds) for policy, seeds in falls.items()}
    fallen = format_named(
        {format_policy(policy): f"{value:+.0%}" for policy, value in shares.items()}
    )
    return ClaimFinding(holds, f"falls: {fallen}; {text}", {"fall": shares})


def rarely(policy: str, evidence: Evidence) -> ClaimFinding:
    """Feasible runs of a policy that knows of no limits."""
    shares = {world: evidence.feasible(crowd_key(world, "tight", policy)) for world in BOTH}
    numbers = {world: share.value for world, share in shares.items()}
    return ClaimFinding(max(numbers.values()) <= RARELY, format_named({**shares}), numbers)


for free in UNAWARE:
    register_claim(
        f"tight-{free}-rarely",
        SECTION,
        f"{format_policy(free)}, which knows of no limits, seldom meets the tight ones.",
        f"At most {RARELY:.0%} of the seeds keep all tight limits, with no tolerance, in each "
        f"environment.",
        feasibility=True,
    )(partial(rarely, free))


@register_claim(
    "unaware-no-control",
    SECTION,
    "CUCB, TS and Greedy miss the tight limits as nothing in them holds back the use of experts.",
    "Their mean number of experts is the same in each seed under tight limits as under none, and "
    "above the cap in more than half of their infeasible runs.",
    feasibility=True,
)
def no_control(evidence: Evidence) -> ClaimFinding:
    """Do limits change their play, and is it the cap that they break?"""
    moved, over, broken = 0.0, 0, 0
    for environment in BOTH:
        for policy in UNAWARE:
            key = crowd_key(environment, "tight", policy)
            tight = evidence.values(key, "expert")
            free = evidence.values(crowd_key(environment, "none", policy), "expert")
            moved = max(moved, *(abs(gap) for gap in subtract_by_seed(tight, free).values()))
            cap, kept = evidence.values(key, "expert_bound"), evidence.kept(key)
            infeasible = [seed for seed in kept if not kept[seed]]
            broken += len(infeasible)
            over += sum(tight[seed] > cap[seed] for seed in infeasible)
    text = f"largest change {moved:.4f}; above the cap in {over} of {broken} infeasible runs"
    holds = moved <= 1e-9 and 2 * over > broken
    return ClaimFinding(holds, text, {"moved": moved, "over_cap": over, "infeasible": broken})


@register_claim(
    "only-omd-always-tight",
    "6.3 second caption",
    "Under tight limits OMD alone is feasible in all runs of both environments.",
    "Of the eight policies, OMD alone keeps all tight limits, with no tolerance, in every seed of "
    "both environments.",
    feasibility=True,
)
def only_always(evidence: Evidence) -> ClaimFinding:
    """Who keeps the tight limits in every seed."""
    shares = {
        policy: [evidence.feasible(crowd_key(world, "tight", policy)) for world in BOTH]
        for policy in ALL
    }
    full = [policy for policy, both in shares.items() if all(map(in_every_run, both))]
    text = f"in all runs: {', '.join(map(format_policy, full)) or 'nobody'}"
    numbers = {policy: [share.value for share in both] for policy, both in shares.items()}
    return ClaimFinding(full == ["omd"], text, {"share": numbers})
