"""The summary: three sentences, every word of which depends on the numbers."""

from bylot._text import format_percent, join_words
from bylot.whatif.plan import DISTRIBUTION_KINDS
from bylot.whatif.results import PolicyResult, WhatifResults


def summarize_results(found: WhatifResults) -> list[str]:
    """What is earned, whether the limits are kept, and what they cost."""
    if not found.standings:
        return ["No policy was played, so there is nothing to tell."]
    return [reward_sentence(found), limits_sentence(found), cost_sentence(found)]


def reward_sentence(found: WhatifResults) -> str:
    """The best policy that keeps the limits, or else the best of all, beside the yardsticks."""
    one, setup = found.headline, found.setup
    high = setup.file.rewards[1]
    text = (
        f"{one.policy}{', which breaks limits,' if one.breaks else ''} earns "
        f"{one.reward:.3f} of {high:g} a request over {setup.rounds:,} requests "
        f"(mean of {len(one.plays)} seed{'s' * (len(one.plays) != 1)})"
    )
    parts = [
        f"{format_comparison(one.reward, mark.value)} {name} ({mark.value:.3f}"
        f"{'' if mark.kept else ', which breaks limits'})"
        for what, name in {
            one.kind: OWN_REFERENCE.format(DISTRIBUTION_KINDS[one.kind].law),
            **COMPARED_REFERENCES,
        }.items()
        if (mark := found.mark(what)) is not None and (mark.kept or what == "equal")
    ]
    return f"{text}: {join_words(parts, 'and')}." if parts else f"{text}."


OWN_REFERENCE = "the best {} that keeps the limits"
COMPARED_REFERENCES = {
    "set": "the best single panel that keeps them",
    "equal": "asking all experts equally often",
}


def format_comparison(reward: float, value: float) -> str:
    """How much more or less, in parts of the yardstick if that is a measure at all.

    >>> (
    ...     format_comparison(1.1, 1.0),
    ...     format_comparison(0.9, 1.0),
    ...     format_comparison(1.0, 1.0),
    ...     format_comparison(0.0, -1.0),
    ... )
    ('10.0% more than', '10.0% less than', 'as much as', 'more than')
    """
    if abs(reward - value) <= 5e-4 * abs(value):
        return "as much as"
    side = "more than" if reward > value else "less than"
    return f"{format_percent(abs(reward / value - 1))} {side}" if value > 0 else side


def limits_sentence(found: WhatifResults) -> str:
    """Who kept all limits when they were due, and who did not."""
    setup, standings = found.setup, found.standings.values()
    count = len(setup.problem.limits)
    if not count:
        return "Nothing is limited."
    all_limits = f"all {count} limits" if count > 1 else "the limit"
    if not any(one.periods for one in standings):
        period = f"{setup.period:,} requests"
        return f"No limit fell due: no period of {period} was played to its end."
    when = "at the end of every period" if setup.horizon is None else "at the end of every play"
    keepers = [one.policy for one in standings if one.keeps]
    breakers = [describe_breach(one) for one in standings if not one.keeps]
    text = f"{join_words(keepers or ['No policy'], 'and')} kept {all_limits} {when}"
    return f"{text}; {join_words(breakers, 'and')}." if breakers else f"{text}."


def describe_breach(one: PolicyResult) -> str:
    """How often a policy left a limit."""
    return f"{one.policy} left a limit in {one.bad_periods} of {one.periods}"


def cost_sentence(found: WhatifResults) -> str:
    """All limits together, and the dearest."""
    parts = [part for part in (joint_cost_clause(found), costliest_limit_clause(found)) if part]
    if not found.setup.problem.limits:
        return "So no limit costs anything."
    if not parts:
        return "What the limits cost is not known."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def joint_cost_clause(found: WhatifResults) -> str:
    """What would be earned more if nothing were limited; nothing if that is not known."""
    kind = DISTRIBUTION_KINDS[found.headline.kind]
    best, free = found.mark(found.headline.kind), found.mark(kind.free)
    if best is None or free is None:
        return ""
    lost = free.value - best.value
    if lost <= 5e-5 * found.setup.span:
        return "together the limits cost nothing"
    part = f", {format_percent(lost / free.value)} of what" if free.value > 0 else " of what"
    text = f"together the limits cost {lost:.3f} a request{part}"
    return f"{text} {kind.who} could earn without them"


def costliest_limit_clause(found: WhatifResults) -> str:
    """The limit of which a hundredth more room is worth most; nothing if that is not known."""
    prices = found.prices.get(found.headline.kind)
    if not prices:
        return ""
    n = max(range(len(prices)), key=lambda n: found.gain(prices[n]))
    gain, name = found.gain(prices[n]), found.setup.file.limits[n].words
    if gain <= 1e-7 * found.setup.span:
        return "1% more room in any single one is worth nothing"
    return f'the one that costs most is "{name}": 1% more room there is worth {gain:.2g}'
