"""The policies of a what-if run: what each does, in a sentence, and what kind of law it plays."""

from collections.abc import Iterable
from typing import NamedTuple

from bylot.policies import Panel, Policy, Strict, write


class Kind(NamedTuple):
    """A kind of law.

    law:  what there is one of, to be best
    who:  who plays such laws, in a sentence
    name: for a column
    free: the yardstick that is the best of them if nothing were limited
    """

    law: str
    who: str
    name: str
    free: str


KINDS = {
    "panels": Kind(
        "lot of panels of different experts",
        "panels of different experts",
        "best panels",
        "free-panels",
    ),
    "exact": Kind("law of independent draws", "independent draws", "best draws", "free-draws"),
}
"""By the yardstick that is the best of the kind within the limits."""

ABOUT = {
    "distinct": "asks as many different experts as there are draws and learns whom to ask how "
    "often",
    "panel": "asks as many different experts and learns by a model what sets of them miss",
    "tangent": "draws independently, so that it asks fewer at times, and learns the odds",
    "strict": "draws independently, within odds that keep the limits in every request on average; "
    "made for worlds that may be against you",
    "omd": "is the paper's algorithm as in its experiments: independent draws, under a stand-in "
    "that is stricter than the limits",
    "omd-plain": "is the algorithm that the paper's theorems speak of",
    "omd-sum": "is a variant of omd: gradients of a batch are summed",
    "omd-frozen": "is a variant of omd: the dual stands still within a batch",
    "random": "asks different experts by lot, all as often; it neither learns nor minds limits",
    "greedy": "asks those that earned most so far; it minds no limits",
    "cucb": "asks those that may be best (upper confidence bounds); it minds no limits",
    "cbwk": "does as cucb, with a price on each limit that holds averages near it, on either side",
    "cbwk-instant": "is a variant of cbwk: prices follow each request by itself",
    "ts": "asks those that look best in a draw from its beliefs (Thompson); it minds no limits",
    "ts-bwk": "does as ts, with a price on each limit that holds averages near it, on either side",
    "ts-bwk-instant": "is a variant of ts-bwk: prices follow each request by itself",
    "moe": "learns a gate over experts (mixture of experts), with a price on each limit",
}
"""What each policy does; what it promises depends on its settings."""


def kind(policy: Policy) -> str:
    """The kind of law that a policy plays."""
    return "exact" if policy.multinomial else "panels"


def kinds(policies: Iterable[Policy]) -> list[str]:
    """The kinds of several, each once."""
    there = set(map(kind, policies))
    return [one for one in KINDS if one in there]


def about(words: str, policy: Policy) -> str:
    """What the policy that goes by these words does and promises: that of its name, with settings
    of its own or not, or the one that `auto` took.
    """
    name, colon, _ = words.partition(":")
    if name == "auto":
        took = write(policy)["name"]
        does = f"{words} is {took} here, which {ABOUT[took]}"
    else:
        does = f"{words} {ABOUT[name]}{' (with settings of your own)' if colon else ''}"
    return "; ".join([does, *promises(policy)]) + "."


def promises(policy: Policy) -> list[str]:
    """What it says of the limits, if it has a guard, and of its odds, if it may have none."""
    made = []
    if getattr(policy, "guard", False):
        made.append("it guards the limits: they hold at the end of every period")
    elif hasattr(policy, "guard") and not isinstance(policy, Strict):  # whose odds say enough
        made.append("its guard is off: it does not promise that any limit holds")
    if isinstance(policy, Panel):
        made.append(told(policy.explore))
    return made


def told(explore: float) -> str:
    """Of how many of its panels `panel` tells the odds.

    >>> told(0.02)
    'it tells the odds of its panels in 2% of its rounds, which it sets aside for that'
    """
    if explore == 0:
        return "it cannot tell the odds of its panels"
    rounds = f"{100 * explore:g}% of its rounds, which it sets aside for that"
    return f"it tells the odds of its panels in {rounds if explore < 1 else 'every round'}"
