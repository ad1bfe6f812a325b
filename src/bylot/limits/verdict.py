"""The verdict on a limit of a router or a log: a word and a sentence, the same wherever it stands.

It is computed here only. Status texts, pages, metrics and evaluations show it as it is.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct

from bylot._text import format_number, join_words
from bylot.limits.keys import TenantsSummary, format_tenant
from bylot.limits.report import LimitInPeriod, describe_promise
from bylot.limits.window_status import WindowStatus
from bylot.problem import Limit
from bylot.problem.instants import format_instant

VerdictName = Literal[
    "will be missed",
    "missed",
    "outside",
    "spent",
    "will run out",
    "recovering",
    "on track",
    "inside",
    "kept",
    "not started",
]
"""In a period: on track, recovering (outside now, inside at its end) or will be missed. Of a period
that is over: kept or missed. Without periods, of the average so far: inside or outside. The budget
of a window of the calendar is on track, will run out before the window ends, even of the cheapest
panels, or is spent: requests are refused until the window ends.
"""
VERDICTS: tuple[VerdictName, ...] = get_args(VerdictName)  # worst first
BROKEN_VERDICTS: tuple[VerdictName, ...] = VERDICTS[:3]
RECOVERY_CONDITIONS = (
    "whichever experts are available",
    "unless experts become available again",
    "unless other panels compensate",
)
"""What could still bring a limit back inside: nothing, experts, or panels that happen to be drawn
and cost less than those of the fallback schedule.
"""
EDIT_NOTE = "; decisions before the edit count by the bound they had"
CONTEST_NOTE = " unless the guard misses it too, for a limit that is out of reach"
AVERAGE_TOLERANCE = 1e-9  # relative; averages are sums of many costs, and of corrections


class LimitVerdict(Struct, frozen=True):
    """A word, and a sentence with the numbers behind it."""

    name: VerdictName
    sentence: str

    @property
    def kept(self) -> bool:
        """The limit holds, or can hold at the end of the period."""
        return self.name not in BROKEN_VERDICTS


def judge_average(limit: Limit, mean: float | None) -> LimitVerdict:
    """The verdict on an average, of a policy without periods or of a log.

    >>> from bylot.problem import at_most
    >>> judge_average(at_most("usd", 3.0), 3.25)
    LimitVerdict(name='outside', sentence='average 3.25 of at most 3')
    """
    if mean is None:
        return LimitVerdict("not started", "no decisions yet")
    if limit.is_total:
        return LimitVerdict("not started", f"a budget per {limit.per} is judged in its windows")
    if limit.where or limit.scope:
        return LimitVerdict("not started", "an average over some requests is judged by those")
    name: VerdictName = "inside" if is_within_bound(limit, mean) else "outside"
    return LimitVerdict(name, f"average {describe_average(limit, mean)}")


def judge_tenants(limit: Limit, tenants: TenantsSummary, missed: int) -> LimitVerdict:
    """The verdict on a limit for each tenant: how many there are, and who has used most."""
    if not tenants.active:
        return LimitVerdict("not started", f"no tenant has sent a request this {tenants.per} yet")
    judge = judge_tenant_budgets if limit.is_total else judge_tenant_shares
    verdict = judge(limit, tenants)
    plural = "s" * (tenants.active != 1)
    parts = [f"{tenants.active:,} tenant{plural} this {tenants.per}", verdict.sentence]
    if missed:
        ended = "window of a tenant" if missed == 1 else "windows of tenants"
        parts.append(f"{missed:,} earlier {ended} ended outside")
    return LimitVerdict(verdict.name, "; ".join(parts))


def judge_tenant_budgets(limit: Limit, tenants: TenantsSummary) -> LimitVerdict:
    """Judge a budget. It is spent if no tenant has anything left; some may well be refused."""
    first, total = tenants.top[0], format_number(tenants.total)
    left = f"{tenants.spent:,} {'has' if tenants.spent == 1 else 'have'} nothing left"
    most = f"{format_number(first.spent)} of at most {format_number(first.bound)}"
    parts = [
        f"{total} spent in all",
        left if tenants.spent else "all have something left",
        f"most used by {format_tenant(first.tenant)}: {most}",
    ]
    if not tenants.outside:
        name: VerdictName = "spent" if tenants.spent == tenants.active else "on track"
        return LimitVerdict(name, "; ".join(parts))
    over = "has spent more than its" if tenants.outside == 1 else "have spent more than their"
    why = "calls cost more than was reserved for them, or a bound was lowered"
    return LimitVerdict("missed", "; ".join([f"{tenants.outside:,} {over} bound: {why}", *parts]))


def judge_tenant_shares(limit: Limit, tenants: TenantsSummary) -> LimitVerdict:
    """Likewise, of a share of requests."""
    first = tenants.top[0]
    average = describe_average(limit.at(first.bound), first.spent)
    word = "highest" if limit.sign < 0 else "lowest"
    furthest = f"{word} average: {format_tenant(first.tenant)}, {average}"
    if not tenants.outside:
        return LimitVerdict("on track", f"all are inside now; {furthest}")
    verb = "is" if tenants.outside == 1 else "are"
    sentence = f"{tenants.outside:,} {verb} outside now, which the guard corrects"
    return LimitVerdict("recovering", f"{sentence}; {furthest}")


def judge_group(limit: Limit, now: LimitInPeriod) -> LimitVerdict:
    """The verdict on an average over the requests of some contexts."""
    if now.mean is None:
        return LimitVerdict("not started", "no request of these contexts in this period yet")
    average = f"{describe_average(limit, now.mean)} for requests of these contexts"
    if is_within_bound(limit, now.mean):
        return LimitVerdict("on track", f"inside now ({average})")
    return LimitVerdict("recovering", f"outside now ({average}); the guard corrects it")


class PeriodPosition(Struct, frozen=True):
    """A limit in the current period.

    now:       its mean is what the decisions of this period cost, as measured
    counted:   the average that counts towards the bound. It differs after an edit: decisions before
               it count by the bound that they were made under
    end:       the number of the last decision of the period
    final:     it was made, and it is the last of the horizon
    contested: another limit is out of reach; the guard then misses as little as it can in all
    """

    now: LimitInPeriod
    counted: float | None
    end: int
    final: bool
    contested: bool = False


def judge_period(limit: Limit, period: PeriodPosition) -> LimitVerdict:
    """The verdict on a limit in the current period."""
    now, counted, at_end = period.now, period.counted, f"decision {period.end:,}"
    if period.final:
        name: VerdictName = "missed" if now.missed else "kept"
        return LimitVerdict(name, f"judged at {at_end}, the end of the horizon")
    position, inside, note = "no decisions in this period yet", True, ""
    if counted is not None and now.mean is not None:
        inside = is_within_bound(limit, counted)
        side = "inside" if inside else "over" if limit.sign < 0 else "under"
        average = describe_average(limit, counted)
        if now.mean != counted:
            average, note = f"counts as {average}, measured {format_number(now.mean)}", EDIT_NOTE
        position = f"{side} now ({average})"
    if not now.within_reach:
        condition = RECOVERY_CONDITIONS[0 if now.lost else 1 if now.short else 2]
        sentence = f"{position}, outside at {at_end} {condition}{note}"
        return LimitVerdict("will be missed", sentence)
    note = CONTEST_NOTE * period.contested + note
    if inside:
        return LimitVerdict("on track", f"{position}, inside at {at_end}{note}")
    return LimitVerdict("recovering", f"{position}, back inside by {at_end}{note}")


def judge_window(
    limit: Limit, window: WindowStatus, now: LimitInPeriod, is_spent: bool
) -> LimitVerdict:
    """The verdict on a limit in the current window of the calendar."""
    until, this = format_instant(window.ends, window.zone), f"this {window.per}"
    if not limit.is_total:
        if not window.requests:
            return LimitVerdict("on track", f"no decisions {this} yet, which ends {until}")
        mean = window.spent / window.requests
        inside = is_within_bound(limit, mean)
        average = f"{describe_average(limit, mean)} {this}"
        if not now.within_reach and not inside:
            sentence = f"outside now ({average}), and the experts available now cannot change it"
            return LimitVerdict("will be missed", f"{sentence} by {until}")
        if inside:
            return LimitVerdict("on track", f"inside now ({average}), until {until}")
        return LimitVerdict("recovering", f"outside now ({average}); the guard corrects it")
    spent = f"{format_number(window.spent)} of at most {format_number(limit.bound)} {this}"
    if window.spent > limit.bound * (1 + AVERAGE_TOLERANCE):
        sentence = f"{spent}: calls cost more than was reserved for them, or the bound was lowered"
        refused = f"; requests are refused until {until}" * is_spent
        return LimitVerdict("missed", f"{sentence}{refused}")
    if is_spent:
        return LimitVerdict("spent", f"{spent}; requests are refused until {until}")
    if window.refused_from is not None:
        start = format_instant(window.refused_from, window.zone)
        forecast = f"about {float(f'{window.to_come:.2g}'):,.0f} more are forecast until {until}"
        sentence = f"{spent}; requests will be refused from {start}, as {forecast}"
        return LimitVerdict("will run out", sentence)
    assert window.projected is not None
    lasts = f"about {format_number(window.projected)} at its end, {until}"
    if window.lasts_until is not None:
        lasts = (
            f"at this pace it lasts until {format_instant(window.lasts_until, window.zone)}, so "
            f"panels get cheaper; the {window.per} ends {until}"
        )
    return LimitVerdict("on track", f"{spent}; {lasts}")


def describe_limit_promise(
    limit: Limit, now: LimitInPeriod, verdict: VerdictName, dear: Sequence[str]
) -> str:
    """What the guard promises for a limit, or how its promise was broken.

    dear: experts whose calls cost more on average than the most that was declared
    """
    window = limit.per or "period"
    if now.promise != "broken":
        return describe_promise(now.promise, window)
    parts = []
    if now.missed:
        parts.append(f"{now.missed:,} earlier {window}{'s' * (now.missed != 1)} ended outside")
    elif verdict in BROKEN_VERDICTS:
        parts.append(f"this {window} {'will end' if verdict == 'will be missed' else 'is'} outside")
    if dear:
        parts.append(f"calls of {join_words(dear, 'and')} cost more than max_costs declares")
    else:
        why = "its bound was changed, or experts that it needs were not available"
        parts.append(why if limit.is_derived else f"calls cost more than is declared, {why}")
    return f"broken: {'; '.join(parts)}"


def describe_average(limit: Limit, mean: float) -> str:
    """An average and its bound, with as many digits as it takes to see a difference.

    >>> from bylot.problem import at_most
    >>> [describe_average(at_most("usd", 3.0), mean) for mean in (2.99999, 3.000001)]
    ['3 of at most 3', '3.000001 of at most 3']
    """
    value, bound = format_number(mean), format_number(limit.bound)
    if value == bound and not is_within_bound(limit, mean):
        value, bound = f"{mean:.15g}", f"{limit.bound:.15g}"
    return f"{value} of {limit.side.replace('_', ' ')} {bound}"


def is_within_bound(limit: Limit, mean: float) -> bool:
    """Check an average against a bound, up to rounding."""
    return limit.sign * (mean - limit.bound) >= -AVERAGE_TOLERANCE * abs(limit.bound)
