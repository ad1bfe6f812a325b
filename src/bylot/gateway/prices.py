"""What calls of a model cost, by the prices and lengths that its entry of `model_list` gives.

Prices are in dollars per token, as in LiteLLM. What a call did cost is left to the gateway.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

from bylot.errors import NOT_GIVEN, BylotError


class TypicalTokens(NamedTuple):
    """Tokens of a typical call, from which the declared cost of a model follows."""

    input: int = 500
    output: int = 500


class CallPrice(NamedTuple):
    """What calls of an endpoint cost, and how long they can be."""

    input: float | None
    output: float | None
    max_tokens: int | None  # of an answer: as it is asked for, else as the model allows
    max_input_tokens: int | None  # the model refuses more
    asked_tokens: int | None = None  # of an answer: the gateway asks for no more

    @property
    def is_known(self) -> bool:
        """Whether there is a price; 0 is one too."""
        return self.input is not None or self.output is not None

    def compute_cost(self, input_tokens: int, output_tokens: int) -> float:
        """Dollars of one call: the decimal sum, rounded once.

        >>> CallPrice(1e-6, 2e-6, None, None).compute_cost(500, 500)
        0.0015
        """
        prices = Decimal(repr(self.input or 0.0)), Decimal(repr(self.output or 0.0))
        return float(prices[0] * input_tokens + prices[1] * output_tokens)

    def compute_typical_cost(self, typical: TypicalTokens) -> float:
        """Dollars of a typical call, which is no longer than a call can be."""
        longest = self.max_input_tokens or typical.input, self.max_tokens or typical.output
        return self.compute_cost(min(typical.input, longest[0]), min(typical.output, longest[1]))

    def compute_max_cost(self) -> float | None:
        """Dollars of the longest call; None if calls have no longest length."""
        if self.max_input_tokens is None or self.max_tokens is None:
            return None
        return self.compute_cost(self.max_input_tokens, self.max_tokens)


def read_call_price(what: str, params: Mapping[str, Any], info: Mapping[str, Any]) -> CallPrice:
    """The price of an entry from its `litellm_params` and its `model_info`."""
    given = {**params, **info}
    prices = [
        check_number(what, f"{side}_cost_per_token", given.get(f"{side}_cost_per_token"), 0.0, 1.0)
        for side in ("input", "output")
    ]
    lengths = {
        "max_tokens": params.get("max_tokens", params.get("max_completion_tokens")),
        "model_info.max_tokens": info.get("max_output_tokens", info.get("max_tokens")),
        "max_input_tokens": given.get("max_input_tokens"),
    }
    asked, most, longest = (check_whole(what, name, value) for name, value in lengths.items())
    return CallPrice(prices[0], prices[1], asked or most, longest, asked)


def average_typical_cost(prices: Sequence[CallPrice], typical: TypicalTokens) -> float:
    """Dollars of a typical call of a model whose endpoints share its requests."""
    costs = [Decimal(repr(one.compute_typical_cost(typical))) for one in prices]
    return float(sum(costs) / len(costs))


def find_max_cost(prices: Sequence[CallPrice]) -> float | None:
    """Dollars of the dearest call of a model; None if one of its endpoints has no such call."""
    costs = [one.compute_max_cost() for one in prices]
    return None if None in costs else max(cost for cost in costs if cost is not None)


def check_number(what: str, name: str, value: Any, low: float, high: float) -> float | None:
    """A number within bounds, or None if it is not given."""
    if value is None:
        return None
    number = value
    if isinstance(value, str):  # most YAML programs read 1e-6 as a text
        with suppress(ValueError):
            number = float(value)
    if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number <= high:
        raise BylotError(
            f"{what}: {name}", got=hide_text(value), expected=f"a number in [{low:g}, {high:g}]"
        )
    return float(number)


def check_whole(what: str, name: str, value: Any) -> int | None:
    """A whole number of at least 1, or None if it is not given."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise BylotError(
            f"{what}: {name}", got=hide_text(value), expected="a whole number of at least 1"
        )
    return value


def hide_text(value: Any) -> Any:
    """A number, for a message; anything else is not shown, as it may be a secret."""
    return value if isinstance(value, int | float) else NOT_GIVEN
