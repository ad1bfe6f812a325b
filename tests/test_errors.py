"""Errors carry their parts as data; one renderer writes the sentence."""

import inspect
import pickle
import warnings

import pytest

from bylot import errors
from bylot.errors import InfeasibleLimits, OutOfReachWarning, PolicyError, RewardError
from bylot.problem import Limit, at_least, at_most

CLASSES = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, errors.Explained)
]


def test_an_invalid_value_is_named_with_what_was_expected_and_what_to_do() -> None:
    error = RewardError(got=1.2, expected="a number in [0, 1]", remedy="declare a wider range")
    assert (error.what, error.got, error.expected) == ("reward", 1.2, "a number in [0, 1]")
    assert error.remedy == "declare a wider range"
    assert str(error) == ("invalid reward 1.2: expected a number in [0, 1]; declare a wider range")


def test_none_can_be_an_invalid_value() -> None:
    assert str(RewardError(got=None)) == "invalid reward None"


def test_a_fault_without_a_value_is_followed_by_its_remedy() -> None:
    assert str(PolicyError("too few draws", remedy="use 'omd'")) == "too few draws; use 'omd'"
    assert str(PolicyError("too few draws")) == "too few draws"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_parts_when_it_is_pickled(kind: type[errors.Explained]) -> None:
    error = kind("seed of {limits}", got=-1, expected="0 or more", remedy="use 0", limits=["x"])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == "invalid seed of x -1: expected 0 or more; use 0"


def test_limits_are_rendered_with_the_given_function() -> None:
    def render_loudly(limit: Limit) -> str:
        return f"{limit.name.upper()} <= {limit.bound:g}"

    remedies = ((at_most("usd", 2.0),), (at_most("gpu", 3.0),))
    error = InfeasibleLimits(
        "no policy keeps {limits}",
        limits=(at_most("usd", 1.0), at_most("gpu", 2.0)),
        remedies=remedies,
        draws=4,
    )
    assert error.limits == (at_most("usd", 1.0), at_most("gpu", 2.0))
    assert error.explain(render_loudly) == (
        "no policy keeps USD <= 1 and GPU <= 2; use USD <= 2 or GPU <= 3, "
        "or draw more experts per request: draws=4"
    )


def test_remedies_for_a_running_router_exclude_a_new_number_of_draws() -> None:
    error = InfeasibleLimits("no", remedies=((at_least("a", 1.0),),), draws=4)
    assert str(error.for_running_router()) == (
        "no; use at_least('a', 1.0), or create a new router with draws=4"
    )
    assert str(PolicyError("no", remedy="use 'omd'").for_running_router()) == (
        "no; loosen the limits or change the experts, or create a new router: use 'omd'"
    )
    assert str(error).endswith("draw more experts per request: draws=4"), "the first is unchanged"


def test_warnings_carry_the_same_parts() -> None:
    with pytest.warns(OutOfReachWarning, match="^out of reach of at_most.*; use fewer draws$") as w:
        warnings.warn(
            OutOfReachWarning(
                "out of reach of {limits}", limits=[at_most("a", 1)], remedy="use fewer draws"
            ),
            stacklevel=1,
        )
    message = w[0].message
    assert isinstance(message, OutOfReachWarning)
    assert message.limits == (at_most("a", 1),)
