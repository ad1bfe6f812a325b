"""Claims of 6.3 on what happens as limits are relaxed. Nothing of that paragraph is left out."""

from functools import partial

from bylot_paper.analysis import crowd_key
from bylot_paper.claims.common import (
    ALL,
    AWARE,
    BOTH,
    LEVELS,
    LIMITED,
    TWO,
    compare_all,
    format_named,
    format_policy,
    in_every_run,
    reward_by_seed,
    uniform_note,
)
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.evidence import NEAR_OPTIMAL, Evidence, paired_difference, seed_mean

SECTION = "6.3 relaxation"
LARGEST, CLOSE, ESSENTIALLY = 3.0, 0.97, 0.95
HIGH = ("omd", "ts", "greedy", "ts-bwk", "cucb")


@register_claim(
    "relaxing-helps-feasibility",
    SECTION,
    "Every policy becomes feasible more often as limits are relaxed.",
    "For each of the eight policies and in both environments, the share of seeds that keep all "
    "limits never falls from tight to medium to loose to none. (Four of them ignore limits, so "
    "that their share cannot fall.)",
    feasibility=True,
)
def relaxing(evidence: Evidence) -> ClaimFinding:
    """Shares along the levels."""
    shares = {
        f"{environment} {policy}": [
            evidence.feasible(crowd_key(environment, level, policy)).value for level in LEVELS
        ]
        for environment in BOTH
        for policy in ALL
    }
    falling = [key for key, along in shares.items() if along != sorted(along)]
    text = f"{len(shares) - len(falling)} of {len(shares)} never fall"
    text += f"; these do: {', '.join(falling)}" if falling else ""
    return ClaimFinding(not falling, text, {"share": shares})


@register_claim(
    "relaxed-all-feasible",
    SECTION,
    "Under loose limits and under none practically every run is feasible.",
    f"For each of the eight policies and in both environments, at least {ESSENTIALLY:.0%} of the "
    f"seeds keep all loose limits, with no tolerance (with no limits all do, by definition).",
    feasibility=True,
)
def all_feasible(evidence: Evidence) -> ClaimFinding:
    """The least share."""
    shares = {
        f"{environment} {level} {policy}": evidence.feasible(crowd_key(environment, level, policy))
        for environment in BOTH
        for level in ("loose", "none")
        for policy in ALL
    }
    least = min(shares, key=lambda one: shares[one].value)
    numbers = {"least": shares[least].value}
    return ClaimFinding(
        shares[least].value >= ESSENTIALLY, f"least {shares[least]}: {least}", numbers
    )


def close(policy: str, evidence: Evidence) -> ClaimFinding:
    """Reward against the largest there can be."""
    keys = [crowd_key(environment, level, policy) for environment in BOTH for level in LEVELS]
    means = {
        f"{key.environment} {key.level}": seed_mean(evidence.values(key, "reward")) for key in keys
    }
    uniform = min(seed_mean(evidence.values(key, "uniform")) for key in keys)
    least = min(means, key=lambda one: means[one])
    text = f"least {means[least]:.3f} ({least}); equal shares earn {uniform:.3f} there or more"
    return ClaimFinding(means[least] >= CLOSE * LARGEST, text, {"reward": means})


for high in HIGH:
    register_claim(
        f"close-to-three-{high}",
        SECTION,
        f"The mean reward of {format_policy(high)} stays near {LARGEST:g}, the largest possible.",
        f"At all four levels and in both environments it is at least {CLOSE:.0%} of {LARGEST:g}.",
    )(partial(close, high))


@register_claim(
    "cbwk-lower",
    SECTION,
    "CBwK earns less than OMD, TS, Greedy, TS-BwK and CUCB at every level.",
    f"Its mean reward is below that of each of the five by {TWO}, at all four levels and in both "
    f"environments. (Where no limit binds, CBwK is CUCB by construction.)",
)
def cbwk_lower(evidence: Evidence) -> ClaimFinding:
    """What each of the five earns more."""
    found = {
        f"{environment} {level} {policy}": paired_difference(
            reward_by_seed(evidence, environment, level, policy),
            reward_by_seed(evidence, environment, level, "cbwk"),
        )
        for environment in BOTH
        for level in LEVELS
        for policy in HIGH
    }
    return ClaimFinding(*compare_all(found))


@register_claim(
    "omd-both-at-every-level",
    SECTION,
    "OMD stays near the optimum and gives up no feasibility for it.",
    f"Its mean reward is at least {NEAR_OPTIMAL:.0%} of the true constrained optimum and every seed keeps "
    f"all limits, with no tolerance, at the tight, medium and loose levels of both environments.",
    feasibility=True,
)
def omd_both(evidence: Evidence) -> ClaimFinding:
    """Least reward and least feasible share."""
    keys = [crowd_key(environment, level, "omd") for environment in BOTH for level in LIMITED]
    ratio = min(evidence.ratio(key) for key in keys)
    share = min((evidence.feasible(key) for key in keys), key=lambda one: one.value)
    text = f"least reward {ratio:.1%} of the optimum, least feasible {share}; "
    text += uniform_note(evidence, keys)
    numbers = {"ratio": ratio, "share": share.value}
    return ClaimFinding(ratio >= evidence.near and in_every_run(share), text, numbers)


@register_claim(
    "differences-when-constrained",
    SECTION,
    "Policies differ most where limits bind.",
    "In both environments, the range (largest less least) of the feasible share over the eight "
    "policies, and of the mean reward over the four that know of limits, is larger on average over "
    "tight and medium than over loose and none.",
    feasibility=True,
)
def differences(evidence: Evidence) -> ClaimFinding:
    """Ranges over policies, where limits bind less where they do not."""

    def span(environment: str, level: str, column: str) -> float:
        if column == "feasible":
            keys = [crowd_key(environment, level, policy) for policy in ALL]
            values = [evidence.feasible(key).value for key in keys]
        else:  # the others play the same at every level
            values = [
                seed_mean(reward_by_seed(evidence, environment, level, policy)) for policy in AWARE
            ]
        return max(values) - min(values)

    excess = {
        f"{environment} {column}": (
            span(environment, "tight", column)
            + span(environment, "medium", column)
            - span(environment, "loose", column)
            - span(environment, "none", column)
        )
        / 2
        for environment in BOTH
        for column in ("feasible", "reward")
    }
    text = format_named({key: f"{value:+.3f}" for key, value in excess.items()})
    return ClaimFinding(
        min(excess.values()) > 0, f"excess of the range: {text}", {"excess": excess}
    )
