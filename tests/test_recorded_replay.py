"""Recorded questions as a table, and what a router could earn on it under a budget."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import simulate
from bylot.environments import Given
from bylot.outcome_tables.outcomes import read_recorded_answers
from recorded_answers import PRICES, find_recorded_file
from recorded_optima import RecordedTable, References, read_recorded_table

SEEDS = range(8)


@pytest.fixture(scope="module")
def recorded() -> RecordedTable:
    return read_recorded_table(find_recorded_file())


@pytest.fixture(scope="module")
def references(recorded: RecordedTable) -> References:
    return recorded.find_references()


def test_the_table_is_that_of_the_reader(recorded: RecordedTable) -> None:
    read = read_recorded_answers(find_recorded_file())
    assert (recorded.models, tuple(recorded.by_id)) == (read.experts, read.questions)
    assert_array_equal(recorded.correct, read.table)
    assert_array_equal(recorded.make_environment().context, read.context)
    assert recorded.scores.shape == (600, 10)
    assert (recorded.scores <= recorded.correct).all()  # the scorer misses some, and invents none
    assert (recorded.correct - recorded.scores).sum() == 80


def test_a_question_is_found_by_its_mark_and_by_its_text(recorded: RecordedTable) -> None:
    texts = [one.text for one in recorded.questions]
    for one in recorded.questions:
        assert recorded.find(f"Please: {one.prompt}") is one
        if texts.count(one.text) == 1:
            assert recorded.find(f"Please: {one.text} Thanks.") is one
    assert recorded.find("[question 0] unknown") is None
    assert recorded.find("something else") is None


def test_every_model_has_a_price_and_the_best_panel_is_not_cheap(
    recorded: RecordedTable, references: References
) -> None:
    assert set(PRICES) == set(recorded.models)
    usd = recorded.costs.mean(axis=0)
    assert usd.max() > 10 * usd.min()
    assert references.panel_usd > 1.5 * 3 * usd.mean()


def test_references_agree_with_all_panels_listed(
    recorded: RecordedTable, references: References
) -> None:
    values = {panel: recorded.expect_score(panel) for panel in combinations(recorded.models, 3)}
    best = max(values, key=lambda panel: values[panel])
    assert set(references.panel.members) == set(best)
    assert references.panel.value == pytest.approx(values[best])
    columns = recorded.columns(best)
    assert references.panel_usd == pytest.approx(recorded.costs[:, columns].sum() / 600)
    assert references.budget_usd == pytest.approx(references.panel_usd / 2)
    # Any two panels mixed within the budget earn at most what the best mixture does, and some two
    # earn it: a linear program with one limit has a solution of two panels.
    mean = recorded.costs.mean(axis=0)
    usd = np.array([mean[recorded.columns(panel)].sum() for panel in values])
    worth, budget = np.array(list(values.values())), references.budget_usd
    cheap, dear = usd <= budget, usd > budget
    share = (budget - usd[cheap, None]) / (usd[None, dear] - usd[cheap, None])
    mixed = worth[cheap, None] + share * (worth[None, dear] - worth[cheap, None])
    assert_allclose(max(worth[cheap].max(), mixed.max()), references.mixture, atol=1e-9)


def test_scores_by_category_average_to_the_score(recorded: RecordedTable) -> None:
    panel = recorded.models[:3]
    parts = [recorded.expect_score(panel, one.category) for one in recorded.questions]
    assert np.mean(parts) == pytest.approx(recorded.expect_score(panel))


def test_categories_are_worth_something(recorded: RecordedTable, references: References) -> None:
    assert recorded.find_mixture_by_category(references.budget_usd) > references.mixture + 0.03


@pytest.mark.slow
def test_a_router_with_member_scores_comes_near_the_best_mixture(
    recorded: RecordedTable, references: References
) -> None:
    """The router alone, without a gateway: the mean over seeds, judged by expected scores."""
    problem, reached = recorded.make_problem(references.budget_usd), []
    names, usd = np.array(recorded.models), recorded.costs.mean(axis=0)
    for seed in SEEDS:
        values, _ = recorded.make_environment().rounds(0, 5000, seed)
        play = simulate(
            problem, Given(values), "noisy-or", rounds=5000, seed=seed, feedback="members"
        )
        panels = [np.unique(draws) for draws in play.draws]
        earned = np.array([recorded.expect_score(names[panel]) for panel in panels])
        reached.append((earned[:1000].mean(), earned.mean()))
        assert np.mean([usd[panel].sum() for panel in panels]) <= references.budget_usd
    first, all_rounds = np.mean(reached, axis=0) / references.mixture
    assert first >= 0.95
    assert all_rounds >= 0.98
