"""What a problem accepts, derives and refuses; each error says what to do."""

import copy
import difflib
import pickle
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot.errors import BylotError, InfeasibleLimits, ProblemError
from bylot.problem import Limit, Problem, Share, at_least, at_most, share
from bylot.problem.validation import suggest_known_name

VALID_ARGUMENTS: dict[str, Any] = {
    "experts": ["ann", "bob", "eve"],
    "costs": {"usd": [1.0, 2.0, 4.0], "hours": [3, 0, 1]},
    "limits": [at_most("usd", 3.0), at_least("hours", 0.5)],
    "draws": 2,
}


def make_problem(**changes: Any) -> Problem:
    return Problem(**{**VALID_ARGUMENTS, **changes})


def test_a_problem_has_the_given_parts() -> None:
    problem = make_problem()
    assert problem.experts == ("ann", "bob", "eve")
    assert (problem.size, problem.draws) == (3, 2)
    assert problem.limits == (at_most("usd", 3.0), at_least("hours", 0.5))
    assert_array_equal(problem.costs["hours"], [3.0, 0.0, 1.0])
    assert problem.costs["hours"].dtype == np.float64


def test_rows_bounds_and_signs_follow_the_limits_and_two_sides_are_two_coordinates() -> None:
    problem = make_problem(
        limits=[at_least("usd", 1.0), at_most("hours", 2.0), at_most("usd", 3.0)]
    )
    assert_array_equal(problem.rows, [[1, 2, 4], [3, 0, 1], [1, 2, 4]])
    assert_array_equal(problem.bounds, [1.0, 2.0, 3.0])
    assert_array_equal(problem.signs, [+1, -1, -1])
    assert problem.rows.dtype == np.float64
    assert problem.signs.dtype == np.int64


def test_the_surrogate_box_and_the_target() -> None:
    problem = make_problem()
    assert_array_equal(problem.box.low, [0.0, 0.5])
    assert_array_equal(problem.box.high, [1.5, 3.0])  # 3 / M, and the largest of the hours alone
    assert_array_equal(problem.target.low, [-np.inf, 0.5])
    assert_array_equal(problem.target.high, [3.0, np.inf])


def test_a_minimum_above_every_single_cost_is_a_point_of_the_box() -> None:
    problem = make_problem(limits=[at_least("hours", 3.5)])  # ann and eve together give 4
    assert (problem.box.low[0], problem.box.high[0]) == (3.5, 3.5)


def test_without_limits_the_arrays_are_empty_but_have_a_shape() -> None:
    for problem in [make_problem(limits=()), Problem(["ann", "bob"], {}, draws=1)]:
        assert problem.rows.shape == (0, problem.size)
        assert problem.bounds.shape == problem.signs.shape == (0,)
        assert problem.box.low.size == problem.target.low.size == 0
        assert problem.surrogate_conflict is None


def test_the_floor_is_a_tenth_of_the_uniform_share_unless_given() -> None:
    assert make_problem().floor == 1 / 30
    assert make_problem(floor=0.1).floor == 0.1
    for size in range(2, 200):  # 1/K itself is allowed, although K * (1/K) may round above 1
        assert Problem(map(str, range(size)), {}, draws=1, floor=1 / size).floor == 1 / size


def test_a_share_becomes_an_indicator_cost_under_its_name() -> None:
    juniors = share("junior", ["eve", "ann"])
    problem = make_problem(limits=[at_least(juniors, 0.3), at_most("junior", 1.5)])
    assert_array_equal(problem.costs["junior"], [1.0, 0.0, 1.0])
    assert_array_equal(problem.rows, [[1, 0, 1], [1, 0, 1]])
    assert problem.limits[0].name == "junior"
    assert problem.limits[0].cost == juniors


def test_a_share_may_be_named_again_with_the_same_members() -> None:
    twice = [at_least(share("j", ["ann", "eve"]), 0.3), at_most(share("j", ["eve", "ann"]), 1.5)]
    assert_array_equal(make_problem(limits=twice).rows, [[1, 0, 1], [1, 0, 1]])
    assert make_problem(costs={"j": [1, 0, 1]}, limits=twice).rows.shape == (2, 3)


def test_costs_can_be_any_array_like() -> None:
    numbers: list[Any] = [[1, 0, 1], (1.0, 0.0, 1.0), np.array([1, 0, 1])]
    flags: list[Any] = [[True, False, True], np.array([True, False, True]), [np.True_, 0, 1.0]]
    for given in [*numbers, np.array([1, 0, 1], np.float32), *flags]:
        assert_array_equal(
            make_problem(costs={"usd": given}, limits=()).costs["usd"], [1.0, 0.0, 1.0]
        )


def test_experts_and_limits_can_be_any_iterable() -> None:
    experts, limits = iter(VALID_ARGUMENTS["experts"]), iter(VALID_ARGUMENTS["limits"])
    assert make_problem(experts=experts, limits=limits) == make_problem()


def test_more_draws_than_experts_are_allowed() -> None:
    assert make_problem(draws=np.int64(7)).draws == 7


def test_a_problem_is_immutable() -> None:
    prices = np.array([1.0, 2.0, 4.0])
    problem = make_problem(costs={"usd": prices, "hours": [3, 0, 1]})
    prices[0] = 99.0
    assert problem.costs["usd"][0] == 1.0
    for array in [problem.costs["usd"], problem.rows, problem.bounds, problem.box.high]:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 5.0
    with pytest.raises(TypeError):
        problem.costs["usd"] = prices  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        problem.draws = 3  # type: ignore[misc]


def test_two_problems_with_the_same_content_are_equal() -> None:
    assert make_problem() == make_problem()
    assert hash(make_problem()) == hash(make_problem())
    assert make_problem() != make_problem(draws=3)
    assert make_problem() != make_problem(costs={"usd": [1.0, 2.0, 4.5], "hours": [3, 0, 1]})
    assert make_problem() != "problem"
    assert make_problem(limits=[at_most("usd", 3.0)]) != make_problem(limits=[at_least("usd", 3.0)])


def test_copies_and_pickles_are_equal_and_still_read_only() -> None:
    problem = make_problem(limits=[at_least(share("junior", ["ann"]), 0.3)], floor=0.02)
    for other in [pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)]:
        assert other == problem
        assert not other.rows.flags.writeable
        assert not other.costs["junior"].flags.writeable


def test_replace_makes_a_variant() -> None:
    problem = make_problem(limits=[at_least(share("junior", ["ann"]), 0.3)])
    assert replace(problem, draws=3).draws == 3
    assert replace(problem, draws=2) == problem
    assert problem.replace(draws=3) == replace(problem, draws=3)
    for change in ({"limits": ()}, {"draws": 1}, {"floor": 0.1}):
        assert make_problem(period=7, floor=0.02).replace(**change).period == 7
    with pytest.raises(InfeasibleLimits):
        problem.replace(limits=[at_most("usd", 0.5)])
    with pytest.raises(ProblemError, match="unknown field 'horizon'"):
        problem.replace(horizon=3)


def test_a_problem_prints_as_a_summary() -> None:
    assert repr(make_problem()) == (
        "Problem(3 experts, costs ['usd', 'hours'], "
        "limits [at_most('usd', 3.0), at_least('hours', 0.5)], draws=2, floor=0.03333333333333333)"
    )


BAD_EXPERTS = [
    ("ann", ["invalid experts 'ann'", "list of names", "experts=['ann', 'bob', ...]"]),
    (7, ["invalid experts 7", "list of names"]),
    ([], ["invalid experts []", "at least two experts"]),
    (["ann"], ["invalid experts ['ann']", "at least two experts"]),
    (["ann", "bob", "ann"], ["experts[0] and experts[2]", "'ann'", "a name of its own"]),
    (["ann", "", "eve"], ["invalid experts[1] ''", "non-empty string"]),
    (["ann", None, "eve"], ["invalid experts[1] None", "non-empty string"]),
]

NUMBERS = "expected 0 or a number from 1e-100 to 1e+100"
EACH = "expected one number for each of the 3 experts"

BAD_COSTS = [
    ([[1, 2, 3]], ["invalid costs [[1, 2, 3]]", "mapping", "costs={'usd': [...]}"]),
    ({"": [1, 2, 3]}, ["invalid name of a cost ''", "non-empty string"]),
    ({3: [1, 2, 3]}, ["invalid name of a cost 3", "non-empty string"]),
    ({"usd": [1, 2]}, ["cost 'usd' has shape (2,)", EACH]),
    ({"usd": [[1, 2, 3]]}, ["cost 'usd' has shape (1, 3)", EACH]),
    ({"usd": 5.0}, ["cost 'usd' has shape ()", EACH]),
    (
        {"usd": [np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 1))]},
        ["cost 'usd' has uneven parts", EACH],
    ),
    ({"usd": {"ann": 1.0}}, ["invalid cost 'usd' {'ann': 1.0}", EACH, "order of the experts"]),
    ({"usd": [1.0, "two", 3.0]}, ["cost 'usd' of expert 'bob': 'two'", NUMBERS]),
    ({"usd": ["1", "2", "3"]}, ["cost 'usd' of expert 'ann': '1'", NUMBERS]),
    ({"usd": [1.0, None, 3.0]}, ["cost 'usd' of expert 'bob': None", NUMBERS]),
    ({"usd": [1.0, 2j, 3.0]}, ["cost 'usd' of expert 'bob': 2j", NUMBERS]),
    ({"usd": [1.0, -2.0, 3.0]}, ["expert 'bob': -2.0", NUMBERS, "cost of its own"]),
    ({"usd": [1.0, 2.0, np.nan]}, ["expert 'eve': nan", NUMBERS, "leave that expert out"]),
    ({"usd": np.array([1.0, np.inf, 3.0])}, ["expert 'bob': inf", NUMBERS]),
    ({"usd": [1.0, 10**400, 3.0]}, ["expert 'bob': inf", NUMBERS]),
    ({"usd": [1.0, 1e-150, 3.0]}, ["expert 'bob': 1e-150", NUMBERS, "another unit"]),
    ({"usd": [1.0, 1e150, 3.0]}, ["expert 'bob': 1e+150", NUMBERS, "another unit"]),
]

JUNIOR = "Share(group='j', members=('ann',)) has the same name as"

BAD_LIMITS = [
    (at_most("usd", 1), ["invalid limits Limit(", "list of limits", "limits=[at_most"]),
    (5, ["invalid limits 5", "list of limits"]),
    ([("usd", 1.0)], ["invalid limits[0] ('usd', 1.0)", "a limit", "at_most or at_least"]),
    ([at_most("uds", 1)], ["at_most('uds', 1.0)", "unknown cost", "did you mean 'usd'?"]),
    ([at_most("zzz", 1)], ["at_most('zzz', 1.0)", "unknown cost", "'usd', 'hours'", "or add it"]),
    (
        [at_least(share("j", ["bbo"]), 0.1)],
        ["share 'j'", "unknown member 'bbo'", "did you mean 'bob'?"],
    ),
    (
        [at_least(share("j", ["zoe"]), 0.1)],
        ["share 'j'", "unknown member 'zoe'", "'ann', 'bob', 'eve'"],
    ),
    (
        [at_least(share("usd", ["bob"]), 0.1)],
        ["Share(group='usd', members=('bob',))", "same name as another cost", "another name"],
    ),
    (
        [at_least(share("j", ["bob"]), 0.1), at_most(share("j", ["ann"]), 0.1)],
        [f"{JUNIOR} Share(group='j', members=('bob',))", "another name"],
    ),
    (
        [at_most("usd", 3), at_most("usd", 2)],
        [
            "at_most('usd', 3.0) and at_most('usd', 2.0)",
            "same side",
            "tighter: at_most('usd', 2.0)",
        ],
    ),
    (
        [at_least("usd", 3), at_least("usd", 2)],
        ["same side", "keep the tighter: at_least('usd', 3.0)"],
    ),
]

DRAWS = "expected an integer from 1 to 10000; give the number of experts"

BAD_DRAWS = [
    (0, ["invalid draws 0", DRAWS]),
    (10_001, ["invalid draws 10001", DRAWS]),
    (-3, ["invalid draws -3", DRAWS]),
    (2.0, ["invalid draws 2.0", DRAWS]),
    (True, ["invalid draws True", DRAWS]),
    (np.True_, [DRAWS]),
    ("2", ["invalid draws '2'", DRAWS]),
    (None, ["invalid draws None", DRAWS]),
]

FLOOR = "expected a number above 0 and at most 1/3 = 0.3333333333333333; leave it out for 0.0333"

BAD_FLOORS = [
    (0.34, ["invalid floor for each of 3 experts 0.34", FLOOR]),
    (np.inf, ["inf", FLOOR]),
    (0.0, ["0.0", FLOOR]),
    (-0.1, ["-0.1", FLOOR]),
    (np.nan, ["nan", FLOOR]),
    ("0.1", ["'0.1'", FLOOR]),
    (True, ["True", FLOOR]),
]

REFUSED = [
    *(("experts", given, words) for given, words in BAD_EXPERTS),
    *(("costs", given, words) for given, words in BAD_COSTS),
    *(("limits", given, words) for given, words in BAD_LIMITS),
    *(("draws", given, words) for given, words in BAD_DRAWS),
    *(("floor", given, words) for given, words in BAD_FLOORS),
]


@pytest.mark.parametrize(("part", "given", "words"), REFUSED)
def test_an_error_says_what_was_given_what_was_expected_and_what_to_do(
    part: str, given: Any, words: list[str]
) -> None:
    with pytest.raises(ProblemError) as caught:
        make_problem(**{part: given})
    for word in words:
        assert word in str(caught.value)
    assert not isinstance(caught.value, InfeasibleLimits)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: at_most("usd", -1), ["bound at_most of the limit on 'usd' -1:", NUMBERS]),
        (lambda: at_least("usd", -1), ["bound at_least of the limit on 'usd' -1:", NUMBERS]),
        (lambda: at_most("usd", np.nan), ["limit on 'usd' nan:", NUMBERS]),
        (lambda: at_most("usd", np.inf), ["inf:", NUMBERS, "leave the limit out, as every"]),
        (lambda: at_least("usd", np.inf), ["inf:", NUMBERS, "leave the limit out, as no average"]),
        (lambda: at_most("usd", 1e150), ["1e+150:", NUMBERS, "another unit"]),
        (lambda: at_most("usd", "2"), ["'2':", NUMBERS]),  # type: ignore[arg-type]
        (lambda: at_most("usd", True), ["True:", NUMBERS]),
        (lambda: at_most(7, 2.0), ["limit 7:", "name of a cost or a share"]),  # type: ignore[arg-type]
        (lambda: Limit("usd", 1.0, 0), ["limit on 'usd' 0:", "-1 or +1", "at_most or at_least"]),
        (lambda: share("j", []), ["share 'j'", "no members", "at least one"]),
        (
            lambda: share("j", "ann"),
            ["members of share 'j' 'ann'", "list of names", "share('j', ['ann'])"],
        ),
        (lambda: share("j", ["ann", "ann"]), ["share 'j'", "'ann' 2 times", "once"]),
        (lambda: share("", ["ann"]), ["invalid group of a share ''", "a non-empty name"]),
    ],
)
def test_invalid_limits_and_shares_are_refused(make: Any, words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_errors_of_a_problem_are_value_errors() -> None:
    for kind in (ProblemError, ValueError, BylotError):
        with pytest.raises(kind):
            make_problem(draws=0)


def test_a_limit_of_a_problem_without_costs_is_an_error() -> None:
    with pytest.raises(ProblemError, match="there are no costs; add it to costs"):
        make_problem(costs={}, limits=[at_most("usd", 1.0)])


def test_limits_are_values() -> None:
    assert at_most("usd", 2) == Limit("usd", 2.0, -1)
    assert at_least(share("j", ["ann"]), 0.3) == Limit(Share("j", ("ann",)), 0.3, +1)
    assert at_most("usd", 2).at(3.5) == at_most("usd", 3.5)
    assert str(at_most("usd", 2).at(1e-6)) == "at_most('usd', 1e-06)"
    assert at_most("usd", -0.0).bound == 0.0
    assert str(at_most("usd", -0.0)) == "at_most('usd', 0.0)"


def test_a_period_is_a_number_of_requests_or_left_out() -> None:
    pair: dict[str, Any] = {"experts": ["a", "b"], "costs": {}, "draws": 1}
    assert Problem(**pair).period is None
    assert Problem(**pair, period=250).period == 250
    assert Problem(**pair, period=250) != Problem(**pair)
    assert pickle.loads(pickle.dumps(Problem(**pair, period=250))).period == 250
    wrong: Any
    for wrong in (0, -1, 2.5, "week", True):
        with pytest.raises(
            ProblemError, match="expected a number of requests, 1 or more; or leave"
        ):
            Problem(**pair, period=wrong)


def test_min_draws_is_a_number_of_members_up_to_the_draws_or_left_out() -> None:
    three: dict[str, Any] = {"experts": ["a", "b", "c"], "costs": {}, "draws": 2}
    plain, upto = Problem(**three), Problem(**three, min_draws=1)
    assert (plain.min_draws, plain.min_members) == (None, 2)
    assert (upto.min_draws, upto.min_members) == (1, 1)
    assert Problem(**{**three, "draws": 9}, min_draws=8).min_members == 3
    assert upto != plain != Problem(**three, min_draws=2)
    assert len({hash(upto), hash(plain), hash(Problem(**three, min_draws=1))}) == 2
    for other in (pickle.loads(pickle.dumps(upto)), copy.deepcopy(upto), upto.replace(period=9)):
        assert other.min_draws == 1
    assert "draws=2, min_draws=1, floor" in repr(upto)
    assert upto.replace(min_draws=None) == plain
    wrong: Any
    for wrong in (0, 3, 1.5, "one", True):
        with pytest.raises(ProblemError, match="expected an integer from 1 to 2, the draws; or"):
            Problem(**three, min_draws=wrong)


def test_a_suggestion_compares_few_names_however_large_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    match = difflib.get_close_matches

    def counting(word: str, names: Sequence[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(names))
        return match(word, names, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    names = [f"expert-{n:04}" for n in range(5_000)]
    assert "did you mean" not in suggest_known_name("expert-00017", names, "experts")
    assert suggest_known_name("cardilogy", [*names[:198], "cardiology"], "experts") == (
        "did you mean 'cardiology'?"
    )
    assert suggest_known_name("an", ["ann", "bob"], "experts") == "did you mean 'ann'?"
    assert compared == [10, 2]
