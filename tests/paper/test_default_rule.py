"""The rule that chooses the default, on made-up tables with a known winner."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.errors import DataError
from bylot_paper.default_rule import (
    LARGE_POOL_SIZE,
    MIN_RULE_SEEDS,
    REFERENCE_POLICY,
    DefaultChoice,
    ResultLine,
    choose_defaults,
)

PLACES_BY_SCENARIO = {"crowd": ("tight", "loose"), "ward": ("ward",), "many": ("many",)}


def make_result(policy: str, place: str, gaps: list[float], **changes: Any) -> ResultLine:
    """A policy that kept all limits and records propensities, unless changed."""
    scenario = next(scenario for scenario, places in PLACES_BY_SCENARIO.items() if place in places)
    size = LARGE_POOL_SIZE + 1 if scenario == "many" else LARGE_POOL_SIZE
    result = ResultLine(
        scenario, place, policy, size, None, dict(enumerate(gaps)), len(gaps), len(gaps), 0, True
    )
    return result._replace(**changes)


def make_results(
    lost: dict[str, float], noise: float = 0.001, seeds: int = 6, **changes: Any
) -> list[ResultLine]:
    """Policies that lose the same everywhere, up to noise."""
    rng = np.random.default_rng(5)
    return [
        make_result(policy, place, (gap + noise * rng.normal(size=seeds)).tolist(), **changes)
        for policy, gap in lost.items()
        for places in PLACES_BY_SCENARIO.values()
        for place in places
    ]


def change_results(
    lines: list[ResultLine], policy: str, place: str | None = None, **changes: Any
) -> list[ResultLine]:
    """The same results with changes in those of one policy."""
    return [
        one._replace(**changes) if one.policy == policy and place in (None, one.place) else one
        for one in lines
    ]


def choices_by_class(lines: list[ResultLine]) -> dict[str, DefaultChoice]:
    """All choices by their class of problems."""
    return {choice.problems: choice for choice in choose_defaults(lines)}


def choose_default(lines: list[ResultLine]) -> str | None:
    """The policy that is chosen."""
    return choose_defaults(lines)[0].policy


GOOD = make_results({REFERENCE_POLICY: 0.03, "better": 0.01, "worse": 0.05})


def test_the_smallest_loss_wins_and_is_relative_to_the_reference() -> None:
    choice = choose_defaults(GOOD)[0]
    assert choice.policy == "better"
    assert list(choice.scores) == ["better", REFERENCE_POLICY, "worse"]
    assert abs(choice.scores["better"].value - 1 / 3) < 0.05
    # The unit of measurement, which has no error
    reference = choice.scores[REFERENCE_POLICY]
    assert (reference.value, reference.error) == (1.0, 0.0)
    assert (
        choose_default(make_results({REFERENCE_POLICY: 0.03, "better": 0.04, "worse": 0.05}))
        == REFERENCE_POLICY
    )


def test_one_run_outside_a_limit_excludes_a_policy() -> None:
    broken = change_results(GOOD, "better", "loose", kept=5)
    assert {choice.policy for choice in choose_defaults(broken)} == {REFERENCE_POLICY}
    assert choose_defaults(broken)[0].excluded == {
        "better": "kept all limits in 5 of 6 runs of loose"
    }
    assert {choice.policy for choice in choose_defaults(GOOD)} == {"better"}  # without that run


def test_a_bad_period_or_a_refusal_excludes_a_policy() -> None:
    spans = [one._replace(period=250, place=f"{one.place}, 250") for one in GOOD]
    assert choose_default(GOOD + spans) == "better"
    assert (
        choose_default(GOOD + change_results(spans, "better", "ward, 250", bad_periods=1))
        == REFERENCE_POLICY
    )
    refused = change_results(spans, "better", "ward, 250", gaps={}, kept=0)
    assert choose_default(GOOD + refused) == REFERENCE_POLICY


@given(st.data())
def test_a_policy_that_breaks_a_limit_anywhere_is_never_chosen(data: st.DataObject) -> None:
    names = [REFERENCE_POLICY, "a", "b", "c"]
    lost = {name: data.draw(st.floats(-0.1, 0.2)) for name in names}
    lines = make_results(lost, noise=data.draw(st.floats(1e-6, 0.1)))
    recorded = {name: data.draw(st.booleans()) for name in names}
    lines = [one._replace(propensities=recorded[one.policy]) for one in lines]
    breaks = data.draw(st.sets(st.integers(0, len(lines) - 1)))
    lines = [one._replace(kept=one.runs - (n in breaks)) for n, one in enumerate(lines)]
    broken = {lines[n].policy for n in breaks}
    for choice in choose_defaults(lines):
        assert choice.policy not in broken
        assert not choice.scores.keys() & broken
        if choice.problems.endswith("with propensities") and choice.policy is not None:
            assert recorded[choice.policy]


def test_a_tie_goes_to_the_policy_that_records_propensities() -> None:
    close = change_results(
        make_results({REFERENCE_POLICY: 0.03, "model": 0.0299}, noise=0.002),
        "model",
        propensities=False,
    )
    choice = choices_by_class(close)["all, propensities not needed"]
    assert (choice.policy, choice.beaten) == (REFERENCE_POLICY, "model")
    choice = choices_by_class(change_results(close, "model", propensities=True))[
        "all, propensities not needed"
    ]
    assert (choice.policy, choice.beaten) == ("model", None)


def test_a_clear_difference_is_not_a_tie() -> None:
    clear = change_results(
        make_results({REFERENCE_POLICY: 0.03, "model": 0.02}, noise=0.002),
        "model",
        propensities=False,
    )
    chosen = choices_by_class(clear)
    assert chosen["all, propensities not needed"].policy == "model"
    assert chosen[f"up to {LARGE_POOL_SIZE} experts, propensities not needed"].policy == "model"
    assert chosen[f"up to {LARGE_POOL_SIZE} experts, with propensities"].policy == REFERENCE_POLICY
    assert chosen[f"up to {LARGE_POOL_SIZE} experts, with propensities"].excluded == {
        "model": "does not record propensities"
    }


def test_the_default_records_propensities_at_any_loss() -> None:
    clear = change_results(
        make_results({REFERENCE_POLICY: 0.03, "model": 0.001}), "model", propensities=False
    )
    assert choose_defaults(clear)[0].policy == REFERENCE_POLICY
    assert choose_defaults(change_results(clear, "model", propensities=True))[0].policy == "model"


def test_scenarios_have_equal_weight_for_any_number_of_places() -> None:
    lines = make_results({REFERENCE_POLICY: 0.03, "other": 0.03}, noise=1e-6)
    for place, part in {"tight": 0.6, "loose": 0.6, "ward": 1.5, "many": 1.2}.items():
        gaps = dict.fromkeys(range(6), 0.03 * part)
        lines = change_results(lines, "other", place, gaps=gaps)
    assert np.mean([0.6, 0.6, 1.5, 1.2]) < 1  # place by place it would have won
    choice = choose_defaults(lines)[0]
    assert choice.policy == REFERENCE_POLICY
    assert abs(choice.scores["other"].value - (0.6 + 1.5 + 1.2) / 3) < 1e-3


def test_each_class_of_problems_has_its_own_winner() -> None:
    lines = change_results(GOOD, "better", "many", gaps=dict.fromkeys(range(6), 0.09))
    chosen = choices_by_class(lines)
    assert chosen[f"up to {LARGE_POOL_SIZE} experts, with propensities"].policy == "better"
    assert (
        chosen[f"more than {LARGE_POOL_SIZE} experts, with propensities"].policy == REFERENCE_POLICY
    )


def test_periods_are_judged_by_length() -> None:
    spans = [
        one._replace(period=period, place=f"{one.place}, {period}")
        for period in (250, 1_000)
        for one in change_results(
            GOOD, "better", gaps=dict.fromkeys(range(6), 0.06 if period < 999 else 0.0)
        )
    ]
    chosen = choices_by_class(GOOD + spans)
    assert chosen["periods of 250 rounds, with propensities"].policy == REFERENCE_POLICY
    assert chosen["periods of 1,000 rounds, with propensities"].policy == "better"


def test_a_policy_without_runs_in_a_judged_place_is_not_a_candidate() -> None:
    spans = [one._replace(period=250, place=f"{one.place}, 250") for one in GOOD]
    others = [one for one in spans if one.policy != "better"]
    assert choose_default(GOOD + spans) == "better"
    choice = choose_defaults(GOOD + others)[0]
    assert choice.policy == REFERENCE_POLICY
    assert choice.excluded == {"better": "was not played in tight, 250 and 3 more"}


def test_unpaired_seeds_are_reported_and_increase_the_error() -> None:
    paired_results = [
        one._replace(gaps=dict(enumerate(np.linspace(0.02, 0.04, 6) + 0.001 * (one.policy == "b"))))
        for one in make_results({REFERENCE_POLICY: 0.03, "b": 0.03})
    ]
    unpaired_results = [
        one._replace(gaps={seed + 6 * (one.policy == "b"): gap for seed, gap in one.gaps.items()})
        for one in paired_results
    ]
    paired, unpaired = choose_defaults(paired_results)[0], choose_defaults(unpaired_results)[0]
    assert paired.uneven == ()
    assert unpaired.uneven == tuple(f"b in {place}" for place in ("tight", "loose", "ward", "many"))
    assert unpaired.scores["b"].value == paired.scores["b"].value
    assert unpaired.scores["b"].error > 10 * paired.scores["b"].error


def test_a_place_without_loss_of_the_reference_does_not_count() -> None:
    lines = change_results(GOOD, REFERENCE_POLICY, "ward", gaps=dict.fromkeys(range(6), -0.01))
    choice = choose_defaults(lines)[0]
    assert choice.uncounted == ("ward",)
    assert choice.policy == "better"


def test_a_reference_without_loss_is_not_reported_as_missing() -> None:
    without_loss = change_results(GOOD, REFERENCE_POLICY, gaps=dict.fromkeys(range(6), 0.0))
    for choice in choose_defaults(without_loss):
        assert choice.policy is None
        assert (
            choice.excluded["better"]
            == f"{REFERENCE_POLICY}, the reference, loses nothing in any place"
        )
    for absent in (
        [one for one in GOOD if one.policy != REFERENCE_POLICY],
        make_results_without_runs(REFERENCE_POLICY),
    ):
        assert choose_defaults(absent)[0].excluded["better"] == (
            f"{REFERENCE_POLICY}, the reference, was not played in any place"
        )


def make_results_without_runs(policy: str) -> list[ResultLine]:
    """Results in which no run of a policy finished."""
    return change_results(GOOD, policy, gaps={})


def test_a_duplicate_result_is_refused() -> None:
    for again in (GOOD[0], GOOD[0]._replace(gaps=dict.fromkeys(range(6), 0.9))):
        with pytest.raises(DataError, match="distinct has two lines in tight; give one"):
            choose_defaults([*GOOD, again])


def test_a_place_belongs_to_one_scenario() -> None:
    with pytest.raises(DataError, match="tight is a place of crowd and of town"):
        choose_defaults([*GOOD, GOOD[0]._replace(scenario="town", policy="other")])
    copies = [one._replace(place=f"{one.place}, 2", scenario="town") for one in GOOD]
    assert choose_default([*GOOD, *copies]) == "better"


@pytest.mark.parametrize("gap", [float("nan"), float("inf"), float("-inf")])
def test_a_gap_that_is_not_finite_is_refused(gap: float) -> None:
    with pytest.raises(
        DataError, match=f"gap of better in ward for seed 3 {gap}: expected a finite number"
    ):
        choose_defaults(
            change_results(GOOD, "better", "ward", gaps={**dict.fromkeys(range(6), 0.01), 3: gap})
        )


def test_few_seeds_or_missing_places_give_no_choice() -> None:
    assert (
        choose_default(make_results({REFERENCE_POLICY: 0.03}, seeds=MIN_RULE_SEEDS))
        == REFERENCE_POLICY
    )
    assert choose_default(make_results({REFERENCE_POLICY: 0.03}, seeds=MIN_RULE_SEEDS - 1)) is None
    partial = [one for one in GOOD if (one.policy, one.place) != ("better", "ward")]
    assert choose_defaults(partial)[0].excluded == {"better": "was not played in ward"}
    assert choose_default([one for one in GOOD if one.policy != REFERENCE_POLICY]) is None
    assert choose_defaults([]) == []
