"""The summary of a what-if run: what to do, what else is allowed, what the limits cost."""

import math
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bylot._text import format_number, format_percent, join_words
from bylot.harness import seed_std
from bylot.whatif.plan import DISTRIBUTION_KINDS
from bylot.whatif.results import PolicyResult, WhatifResults

COMPARED_REFERENCES = {"set": "the best fixed panel", "equal": "asking all experts equally often"}
MAX_REFUSED_SHARE = 0.5  # of the requests; a policy that refuses more is not recommended
MIN_SPENT_PART = 0.5  # of a budget, for which requests may have been refused
MAX_NAMED_LIMITS = 3  # in the first sentence
MAX_BLANK_SHARE = 0.02  # of the answers; more are worth a warning
MAX_STEP = 0.05  # of a bound; a shadow price holds for small changes only


def make_advice(results: WhatifResults) -> dict[str, Any] | None:
    """What to run and what to expect of it: the best policy that kept the limits.

    None if no policy ran. Totals are over `requests`, those of a day or 1,000.
    """
    if not results.policies:
        return None
    plan, one = results.plan, results.headline
    requests = plan.per_day or 1_000
    spend = {name: float(plan.mean_costs[name] @ one.asked) for name in plan.file.units}
    if plan.calls is not None:  # what limited calls did cost
        limited = zip(plan.problem.limits, one.spend.tolist(), strict=True)
        decided = 1.0 - one.refused
        spend |= {limit.name: decided * cost for limit, cost in limited if limit.name in spend}
    reward = {"value": one.reward}
    if one.interval:
        reward |= {"low": one.interval[0], "high": one.interval[1]}
    return {
        "policy": one.policy,
        "keeps": one.keeps,
        "requests": requests,
        "reward": reward,
        "total_reward": {name: x * requests for name, x in reward.items()},
        "spend": spend,
        "total_spend": {name: x * requests for name, x in spend.items()},
        "loosen": find_limits_to_loosen(results, requests),
    }


def find_limits_to_loosen(results: WhatifResults, requests: float) -> list[dict[str, Any]]:
    """The two limits of which 1 % buys most, and what a small step buys in so many requests.

    None of them if no limit binds or no price is known. A step is a power of ten in the unit of
    the cost; the optimum gains at most `gain`; `verdict` is that of the check of the shadow price.
    """
    prices, found = results.prices.get(results.headline.kind, ()), []
    gains = {n: results.gain(price) for n, price in enumerate(prices)}
    for n in sorted(gains, key=gains.__getitem__, reverse=True)[:2]:
        if gains[n] > 1e-7 * results.plan.file.span:
            written, unit = results.plan.file.limits[n], prices[n].unit
            step = 10.0 ** math.floor(math.log10(MAX_STEP * unit * requests))
            found.append(
                {
                    "limit": written.limit.name,
                    "side": written.limit.side,
                    "bound": written.written,
                    "per": written.per,
                    "step": step,
                    "gain": gains[n] / (0.01 * unit) * step,
                    "verdict": prices[n].verdict,
                    "words": f'"{written.words}"',
                }
            )
    return found


def summarize_results(results: WhatifResults, advice: dict[str, Any] | None) -> list[str]:
    """The sentences of the summary; the first one says what to do."""
    if advice is None:
        reasons = [f"{spec} did not run: {why}" for spec, why in results.refused.items()]
        return ["No policy ran, so there are no results.", *reasons]
    parts = (
        describe_advice(results, advice),
        describe_reward(results),
        describe_windows_used(results),
        describe_costs(results, advice),
        describe_broken(results),
        describe_blanks(results),
    )
    return list(filter(None, parts))


def describe_advice(results: WhatifResults, advice: dict[str, Any]) -> str:
    """What to run, its reward and spend, and the limit to loosen."""
    one, plan = results.headline, results.plan
    count = len(plan.problem.limits)
    limits = f"all {count} limits" if count > 1 else "the limit"
    when = f"in every {plan.judged_unit}"
    if one.refused > MAX_REFUSED_SHARE and not one.violated:
        lead = f"{describe_refused(results)} It would earn"
    elif not one.keeps and not one.violated:
        lead = f"{describe_unjudged(results)} {one.policy} would earn"
    elif not one.keeps:
        other = plan.policy_at("auto").name
        instead = "" if other in results.policies else f" (try {other})"
        limited = [plan.file.limits[n] for n in one.list_violated(plan.problem)]
        words = join_words((f'"{limit.words}"' for limit in limited[:MAX_NAMED_LIMITS]), "and")
        if len(limited) > MAX_NAMED_LIMITS or not words:
            words = "limits" if len(limited) > 1 else "a limit"
        lead = (
            f"Do not go live like this: no policy kept {limits} {when}{instead}. {one.policy}, "
            f"which violated {words} in {one.violated} of {one.judged} {plan.judged_units}, would "
            "earn"
        )
    else:
        kept = f"keeps {limits} {when}" if count else "has no limits to keep"
        rate = f"at {format_number(plan.per_day)} requests a day " if plan.per_day else ""
        lead = f"Run {one.policy}, which {kept}: {rate}expect"
    total, *interval = map(format_number, advice["total_reward"].values())
    reward = (
        f"{total} {plan.scenario.reward_noun}" if plan.scenario.solves else f"a reward of {total}"
    )
    if interval:
        reward += f" (95% interval {' to '.join(interval)})"
    spend = plan.file.format_spend(advice["total_spend"])
    text = f"{lead} {reward}{f' for {spend}' if spend else ''} {plan.per_requests}"
    if not count:
        return f"{text}."
    if not results.prices.get(one.kind):
        return f"{text}; what limits cost is unknown."
    if not advice["loosen"]:
        return f"{text}; no single limit is worth loosening."
    first = advice["loosen"][0]
    return f"{text}; to earn more, loosen {first['words']} first: {describe_gain(results, first)}."


def describe_refused(results: WhatifResults) -> str:
    """That most requests were refused, and by which budgets."""
    headline, plan = results.headline, results.plan
    used = {n: headline.window_use(n) for n in plan.budgets}
    spent = [n for n, part in used.items() if part is None or part >= MIN_SPENT_PART] or [*used]
    words = join_words((f'"{plan.file.limits[n].words}"' for n in spent), "or")
    rate = f" for {format_number(plan.per_day)} requests a day" if plan.per_day else ""
    tenant = " of one tenant" if all(plan.problem.limits[n].scope for n in spent) else ""
    return (
        f"{headline.policy} refused {format_percent(headline.refused)} of the requests: {words} "
        f"is too little{rate}{tenant}."
    )


def describe_unjudged(results: WhatifResults) -> str:
    """Why no limit can be judged, or not every one."""
    plan = results.plan
    if not results.headline.periods and plan.has_periods:
        what = "not all limits can be judged" if plan.has_windows else "no limit can be judged"
        if results.headline.refused and plan.rounds >= plan.period:
            return (
                f"So many requests were refused that no period of {plan.period:,} others is "
                f"complete, so {what}: use more --rounds."
            )
        return (
            f"No period of {plan.period:,} requests is complete, so {what}: use --rounds "
            f"{plan.period} or more."
        )
    limits = [plan.file.limits[x.limit] for x in results.headline.runs[0].windows if not x.windows]
    words = join_words((f'"{one.words}"' for one in limits), "and")
    return f"No window of {words} is complete, so not all limits can be judged: use more --rounds."


def describe_windows_used(results: WhatifResults) -> str:
    """What budgets of the calendar were used for, and how many requests were refused."""
    headline, plan = results.headline, results.plan
    if not plan.has_windows:
        return ""
    parts = [
        f'{format_percent(used)} of "{written.words}"'
        for n, written in plan.budgets.items()
        if (used := headline.window_use(n)) is not None
    ]
    text = f" used {join_words(parts, 'and')} in complete windows, and" if parts else ""
    return f"{headline.policy}{text} refused {format_percent(headline.refused)} of the requests."


def describe_gain(results: WhatifResults, looser: dict[str, Any]) -> str:
    """What a step of a limit buys."""
    name, plan = looser["limit"], results.plan
    less = "less" if name in plan.file.units else "fewer"
    side = "more" if looser["side"] == "at_most" else less
    sure = "" if looser["verdict"] in ("agrees", "kink") else " (by a price that is not confirmed)"
    gain = format_number(float(f"{looser['gain']:.2g}"))
    return (
        f"{looser['step']:,g} {side} {plan.file.name_unit(name)} {plan.per_requests} would buy up "
        f"to {gain} more {plan.scenario.reward_noun}{sure}"
    )


def describe_reward(results: WhatifResults) -> str:
    """The headline policy against references and other policies that keep the limits."""
    one, plan = results.headline, results.plan
    best = f"the best {DISTRIBUTION_KINDS[one.kind].best.format(panels=plan.panels)}"
    under = " under the limits" if plan.problem.limits else ""
    parts = [
        f"{compare_rewards(one.reward, found.value)} {label}{under} ({found.value:.3f})"
        for name, label in {one.kind: best, **COMPARED_REFERENCES}.items()
        if (found := results.reference(name)) is not None and found.kept
    ]
    text = (
        f"{one.policy} earns {one.reward:.3f} of {plan.file.rewards[1]:g} per request over "
        f"{plan.rounds:,} requests (mean of {len(one.runs)} seed{'s' * (len(one.runs) != 1)}), "
        f"{one.late:.3f} in the last tenth{': ' * bool(parts)}{join_words(parts, 'and')}."
    )
    others = [other for other in results.ranked if other.keeps and other is not one]
    if others:
        near = {other.policy: not is_clearly_more(one, other) for other in others}
        rewards = (
            f"{other.policy} ({other.reward:.3f}{', not clearly less' * near[other.policy]})"
            for other in others
        )
        text += f" {join_words(rewards, 'and')} {'is' if len(others) == 1 else 'are'} allowed too."
    fixed = results.reference("set")
    if fixed is not None and fixed.kept and fixed.asked is not None and fixed.value > one.reward:
        asked = zip(plan.problem.experts, fixed.asked, strict=True)
        panel = join_words((name for name, share in asked if share), "and")
        text += f" If you trust these values, always asking {panel} earns more."
    logged = [other.policy for other in others if plan.policy_at(other.policy).has_propensities]
    if logged and not plan.policy_at(one.policy).has_propensities:
        text += (
            f" To evaluate other policies from its log, run {logged[0]}: {one.policy} does not "
            "record all propensities."
        )
    return text


def is_clearly_more(one: PolicyResult, other: PolicyResult) -> bool:
    """Whether one policy earns more than another on the same requests, at a level of 95 %."""
    others = dict(zip(other.seeds, other.runs, strict=True))
    pairs = zip(one.seeds, one.runs, strict=True)
    gaps = np.array([run.reward - others[seed].reward for seed, run in pairs if seed in others])
    error = float(seed_std(gaps)) / math.sqrt(max(1, gaps.size))
    return gaps.size > 1 and bool(gaps.mean() > stdtrit(gaps.size - 1, 0.975) * error)


def compare_rewards(reward: float, value: float) -> str:
    """How much more or less, relative to a positive value.

    >>> compare_rewards(1.1, 1.0), compare_rewards(1.0, 1.0), compare_rewards(0.0, -1.0)
    ('10% more than', 'as much as', 'more than')
    """
    if abs(reward - value) <= 5e-4 * abs(value):
        return "as much as"
    side = "more than" if reward > value else "less than"
    return f"{format_percent(abs(reward / value - 1))} {side}" if value > 0 else side


def describe_costs(results: WhatifResults, advice: dict[str, Any]) -> str:
    """The reward that the limits cost together, and the second limit to loosen."""
    if not results.plan.problem.limits:
        return "Nothing is limited."
    kind = DISTRIBUTION_KINDS[results.headline.kind]
    best, free = results.reference(results.headline.kind), results.reference(kind.free)
    if best is None or free is None:
        return "The cost of the limits is unknown."
    lost = free.value - best.value
    if lost <= 5e-5 * results.plan.file.span:
        return "Together the limits cost nothing."
    part = f", {format_percent(lost / free.value)} of what" if free.value > 0 else " of what"
    text = f"Together the limits cost {lost:.3f} per request{part} {kind.plays} earn without them."
    for other in advice["loosen"][1:]:
        text += f" The next to loosen is {other['words']}: {describe_gain(results, other)}."
    return text


def describe_blanks(results: WhatifResults) -> str:
    """A warning if many answers of the table are missing."""
    blank = results.plan.scenario.blanks / (results.plan.scenario.cells or 1)
    if blank <= MAX_BLANK_SHARE:
        return ""
    return (
        f"{format_percent(blank)} of the answers in the table are missing and count as 0: rewards "
        "may be higher."
    )


def describe_broken(results: WhatifResults) -> str:
    """Policies and references that are no alternative, because they break limits."""
    parts = [
        f"{one.policy} ({one.reward:.3f}; it violated a limit in {one.violated} of "
        f"{one.judged} {results.plan.judged_units})"
        for one in results.ranked
        if one.violated
    ]
    parts += [
        f"{label} ({found.value:.3f})"
        for name, label in COMPARED_REFERENCES.items()
        if (found := results.reference(name)) is not None and not found.kept
    ]
    return f"Not allowed, because they break limits: {join_words(parts, 'and')}." if parts else ""
