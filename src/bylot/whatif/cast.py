"""The policies of a what-if run: what each does, in a sentence, and what kind of law it plays."""

from collections.abc import Iterable
from typing import NamedTuple

from bylot.policies import Policy, write


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
    "distinct": "asks as many different experts as there are draws, learns whom to ask how often, "
    "and guards the limits: they hold at the end of every period",
    "panel": "asks as many different experts, learns by a model what sets of them miss, and guards "
    "the limits: they hold at the end of every period; it cannot tell the odds of its panels",
    "tangent": "draws independently, so that it asks fewer at times, learns the odds, and guards "
    "the limits: they hold at the end of every period",
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
"""What each policy does."""


def kind(policy: Policy) -> str:
    """The kind of law that a policy plays."""
    return "exact" if policy.multinomial else "panels"


def kinds(policies: Iterable[Policy]) -> list[str]:
    """The kinds of several, each once."""
    there = set(map(kind, policies))
    return [one for one in KINDS if one in there]


def about(words: str, policy: Policy) -> str:
    """What the policy that goes by these words does: that of its name, with settings of its own or
    not, or the one that `auto` took.
    """
    name, colon, _ = words.partition(":")
    if name == "auto":
        took = write(policy)["name"]
        return f"{words} is {took} here, which {ABOUT[took]}."
    return f"{words} {ABOUT[name]}{' (with settings of your own)' if colon else ''}."
