"""What a panel really cost, as it is told with a reward."""

from collections.abc import Iterable, Mapping
from typing import Any

from bylot.durable.bodies import Rewarded
from bylot.errors import RewardError
from bylot.problem import Problem, Share
from bylot.problem.limits import HUGE
from bylot.problem.reading import instead


def check_spend(spend: Any, problem: Problem) -> dict[str, float] | None:
    """Costs by name, finite and 0 or more, or an error; shares count members, which are known."""
    if spend is None:
        return None
    if not isinstance(spend, Mapping):
        raise RewardError(f"spend={spend!r} given; wanted what each cost was, such as {{'usd': 2}}")
    counted = {one.name for one in problem.limits if isinstance(one.cost, Share)}
    costs = [name for name in problem.costs if name not in counted]
    for name, cost in spend.items():
        if name not in costs:
            remedy = instead(name, costs, "costs that can be settled")
            raise RewardError(f"spend on {name!r}: {remedy}; nothing was changed")
        number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        if not number or not 0 <= cost <= HUGE:
            raise RewardError(
                f"spend on {name!r} is {cost!r}; wanted a number from 0 to {HUGE:g}; "
                "nothing was changed"
            )
    return {name: float(cost) for name, cost in spend.items()}


def beyond(
    spend: Mapping[str, float], stated: Mapping[str, float], told: Iterable[Rewarded]
) -> dict[str, float]:
    """How much more that is than was booked: as told last, or else as stated.

    >>> beyond({"usd": 5.0}, {"usd": 2.0, "ms": 9.0}, [])
    {'usd': 3.0}
    """
    booked = dict(stated)
    for one in told:
        booked.update(one.spend or {})
    return {name: cost - booked.get(name, 0.0) for name, cost in spend.items()}
