"""The summary of a what-if run in three sentences: rewards, limits, costs of the limits."""

from bylot._text import format_percent, join_words
from bylot.whatif.references import DISTRIBUTION_KINDS
from bylot.whatif.results import WhatifResults

COMPARED_REFERENCES = {
    "set": "the best fixed panel under the limits",
    "equal": "asking all experts equally often",
}


def summarize_results(results: WhatifResults) -> list[str]:
    if not results.policies:
        return ["No policy ran, so there are no results."]
    return [describe_reward(results), describe_limits(results), describe_costs(results)]


def describe_reward(results: WhatifResults) -> str:
    """The reward of the headline policy, compared with the references."""
    one, plan = results.headline, results.plan
    seeds = f"{len(one.runs)} seed{'s' * (len(one.runs) != 1)}"
    text = (
        f"{one.policy}{', which violates limits,' if one.bad_periods else ''} earns "
        f"{one.reward:.3f} of {plan.file.rewards[1]:g} per request over {plan.rounds:,} requests "
        f"(mean of {seeds})"
    )
    own = f"the best {DISTRIBUTION_KINDS[one.kind].best} under the limits"
    parts = []
    for name, label in {one.kind: own, **COMPARED_REFERENCES}.items():
        best = results.reference(name)
        if best is not None and (best.kept or name == "equal"):
            note = "" if best.kept else ", which violates limits"
            parts.append(
                f"{compare_rewards(one.reward, best.value)} {label} ({best.value:.3f}{note})"
            )
    return f"{text}: {join_words(parts, 'and')}." if parts else f"{text}."


def compare_rewards(reward: float, value: float) -> str:
    """How much more or less, relative to a positive value.

    >>> compare_rewards(1.1, 1.0), compare_rewards(1.0, 1.0), compare_rewards(0.0, -1.0)
    ('10.0% more than', 'as much as', 'more than')
    """
    if abs(reward - value) <= 5e-4 * abs(value):
        return "as much as"
    side = "more than" if reward > value else "less than"
    return f"{format_percent(abs(reward / value - 1))} {side}" if value > 0 else side


def describe_limits(results: WhatifResults) -> str:
    plan, policies = results.plan, results.policies.values()
    count = len(plan.problem.limits)
    if not count:
        return "Nothing is limited."
    if not any(one.periods for one in policies):
        return f"No period of {plan.period:,} requests is complete, so no limit can be judged."
    limits = f"all {count} limits" if count > 1 else "the limit"
    when = "in every period" if plan.horizon is None else "in every run"
    unit = "periods" if plan.horizon is None else "runs"
    keeping = [one.policy for one in policies if one.keeps] or ["No policy"]
    breaking = [
        f"{one.policy} violated a limit in {one.bad_periods} of {one.periods} {unit}"
        for one in policies
        if not one.keeps
    ]
    text = f"{join_words(keeping, 'and')} kept {limits} {when}"
    return f"{text}; {join_words(breaking, 'and')}." if breaking else f"{text}."


def describe_costs(results: WhatifResults) -> str:
    if not results.plan.problem.limits:
        return "So no limit costs anything."
    parts = [part for part in (describe_joint_cost(results), describe_costliest(results)) if part]
    text = "; ".join(parts) or "the cost of the limits is unknown"
    return f"{text[0].upper()}{text[1:]}."


def describe_joint_cost(results: WhatifResults) -> str:
    """The reward that the limits cost together; empty if unknown."""
    kind = DISTRIBUTION_KINDS[results.headline.kind]
    best, free = results.reference(results.headline.kind), results.reference(kind.free)
    if best is None or free is None:
        return ""
    lost = free.value - best.value
    if lost <= 5e-5 * results.plan.file.span:
        return "together the limits cost nothing"
    part = f", {format_percent(lost / free.value)} of what" if free.value > 0 else " of what"
    return f"together the limits cost {lost:.3f} per request{part} {kind.plays} earn without them"


def describe_costliest(results: WhatifResults) -> str:
    """The limit with the largest gain for a bound that is 1% looser; empty if unknown."""
    prices = results.prices.get(results.headline.kind)
    if not prices:
        return ""
    gains = [results.gain(price) for price in prices]
    n = max(range(len(gains)), key=gains.__getitem__)
    if gains[n] <= 1e-7 * results.plan.file.span:
        return "no single limit is worth loosening by 1%"
    name = results.plan.file.limits[n].words
    return f'the most expensive one is "{name}": a bound 1% looser gains {gains[n]:.2g}'
