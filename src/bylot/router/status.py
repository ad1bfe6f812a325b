"""How a router stands: its promises, what they cost, what it has learned; as data and as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bylot._text import format_table
from bylot.problem import Limit


@dataclass(frozen=True)
class LimitInPeriod:
    """One limit in the current period, at whose end a guard keeps it."""

    mean: float | None  # of this period's decisions; None before the first
    in_force: float  # the bound that panels are drawn under now
    within_reach: bool  # can it still be kept, by the guard and by those who were up last?
    short: bool  # would those who were up last miss it, so that others must come back?
    lost: bool  # would any panels miss it at their stated costs, whoever is up?
    missed: int  # periods that ended outside the limit, since it has this bound


@dataclass(frozen=True)
class LimitStatus:
    """One limit: where the average is, how far from the bound, and what the bound costs."""

    limit: Limit
    mean: float  # since the first decision, under whatever bounds there were
    slack: float  # its distance inside the bound; negative: outside
    price: float  # reward per request that loosening the bound by one unit would buy; NaN: unknown
    current: LimitInPeriod | None  # None where the policy guards no limits

    @property
    def kept(self) -> bool:
        """Is it kept: of a limit with periods, will it be at the end of this one, for all that is
        known? Of another one: is the average since the first decision inside?
        """
        return self.verdict in ("kept", "within reach")

    @property
    def kept_since_first(self) -> bool:
        """Is the average of all decisions inside the bound, also of those before there was this
        bound?
        """
        return is_within_bound(self.limit, self.mean)

    @property
    def verdict(self) -> str:
        """In a word or two; where there are periods, of the current one."""
        now = self.current
        if now is None:
            return "kept" if self.kept_since_first else "outside"
        if not now.within_reach:
            return "out of reach"
        return (
            "kept" if now.mean is None or is_within_bound(self.limit, now.mean) else "within reach"
        )

    @property
    def way_out(self) -> str | None:
        """What could still bring a limit within reach that is out of it; None: it is not."""
        now = self.current
        if now is None or now.within_reach:
            return None
        return (
            RECOVERY_CONDITIONS[0]
            if now.lost
            else RECOVERY_CONDITIONS[1]
            if now.short
            else RECOVERY_CONDITIONS[2]
        )


RECOVERY_CONDITIONS = (
    "whoever is up",
    "unless experts come back",
    "unless other panels than the rota's make up for it",
)


def is_within_bound(limit: Limit, mean: float) -> bool:
    """Is an average inside the bound, up to its rounding?"""
    return limit.sign * (mean - limit.bound) >= -1e-12 * limit.bound


@dataclass(frozen=True)
class PeriodStatus:
    """Where a policy that guards its limits stands in time."""

    length: int  # decisions at whose end limits hold
    played: int  # decisions of it so far
    replaced: int  # panels that the guard replaced since the first decision

    def __str__(self) -> str:
        panels = f"{self.replaced:,} panel{'s' * (self.replaced != 1)} replaced by the guard"
        if self.played == 0:
            return f"{panels}; a new period of {self.length:,} begins"
        return f"{panels}; round {self.played:,} of a period of {self.length:,}"


@dataclass(frozen=True)
class RouterStatus:
    """A router at one moment; means are per decision that was used, or per reward, since the first.

    q:           the distribution that draws come from; where a panel is drawn as one set, the
                 chance of every expert to be in it
    multinomial: are draws independent?
    whole:       is a panel drawn as one set? If neither, q is how often each expert was drawn
    period:      None where the policy guards no limits
    """

    rounds: int
    rewards: int
    waiting: int
    contexts: int
    max_contexts: int  # as declared, or as many as the policy has room for
    mean_reward: float | None
    limits: tuple[LimitStatus, ...]
    mean_cost: Mapping[str, float]
    expected_cost: Mapping[str, float]
    q: Mapping[str, float]
    multinomial: bool
    whole: bool
    period: PeriodStatus | None

    @property
    def kept(self) -> bool:
        """Are all limits kept, in this period if there are periods?"""
        return all(standing.kept for standing in self.limits)

    def __str__(self) -> str:
        reward = "none yet" if self.mean_reward is None else f"{self.mean_reward:.4f} on average"
        head = (
            f"{self.rounds} decisions, {self.rewards} rewards ({reward}), {self.waiting} waiting, "
            f"{self.contexts} context{'s' * (self.contexts != 1)}"
        )
        if self.rounds == 0:
            return head
        best = sorted(self.q.items(), key=lambda item: -item[1])[:5]
        word = "chances now" if self.whole else "odds now" if self.multinomial else "drawn so far"
        tail = ", ".join(f"{name} {share:.1%}" for name, share in best)
        return "\n".join([head, *self.promises(), f"{word}: {tail}"])

    def promises(self) -> list[str]:
        """The table of limits, and where the period stands if there is one."""
        course = () if self.period is None else ("this period", "in force")
        head = ("limit", "average", "bound", "slack", *course, "price", "")
        lines = format_table([head, *(format_limit_row(one) for one in self.limits)])
        if self.period is None:
            return lines
        left = self.period.length - self.period.played
        for way_out in RECOVERY_CONDITIONS:
            names = [one.limit.name for one in self.limits if one.way_out == way_out]
            if names:
                what = f"out of reach for the {left:,} decisions left, {way_out}"
                lines.append(f"{what}: {', '.join(names)}")
        missed = [
            f"{one.limit.name} in {one.current.missed:,}"
            for one in self.limits
            if one.current is not None and one.current.missed
        ]
        if missed:
            lines.append(f"periods that ended outside a limit: {', '.join(missed)}")
        return [*lines, str(self.period)]


def format_limit_row(one: LimitStatus) -> tuple[str, ...]:
    """A limit's row of the table."""
    name = f"{one.limit.name} {'<=' if one.limit.sign < 0 else '>='}"
    so_far, price = (one.mean, one.limit.bound, one.slack), one.price
    now = one.current
    course = () if now is None else (math.nan if now.mean is None else now.mean, now.in_force)
    return (name, *map(format_four_digits, (*so_far, *course, price)), one.verdict)


def format_four_digits(x: float) -> str:
    """Four digits; a dash for what is not known."""
    return "-" if math.isnan(x) else f"{x:.4g}"
