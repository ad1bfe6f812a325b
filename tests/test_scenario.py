"""Scenarios of a problem file: the columns of its experts, its contexts, and errors."""

from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot.environments import Noisy, Outcomes
from bylot.errors import DataError
from bylot.optima import iid_optimum
from bylot.problem_files import ProblemFile, read
from bylot.scenario import (
    Scenario,
    scenario_from_outcomes,
    scenario_from_skills,
    synthetic_scenario,
)

POOL = """\
draws: 2
costs: {usd: US dollars}
experts: [{name: bob, usd: 1}, {name: ann, usd: 3}]
contexts: {day: 3, night: 1}
"""
TABLE = """\
qid,topic,ward,ann,zoe,bob
1,heart,day,1,0,0
2,skin,day,0,0,1
3,skin,night,0.5,0,
4,heart,night,0,1,0.25
"""


def read_problem(folder: Path, content: str = POOL) -> ProblemFile:
    (folder / "pool.yaml").write_text(content)
    return read(folder / "pool.yaml")


def make_scenario(
    folder: Path, content: str = TABLE, problem: str = POOL, **about: str
) -> Scenario:
    """The scenario of one file of outcomes."""
    (folder / "table.csv").write_text(content)
    return scenario_from_outcomes(read_problem(folder, problem), folder / "table.csv", **about)


def test_columns_are_those_of_the_experts_in_their_order(tmp_path: Path) -> None:
    one = make_scenario(tmp_path, dimension="topic", context="ward")
    assert isinstance(one.environment, Outcomes)
    assert_array_equal(one.environment.table[:, 0], [0, 1, 0, 0.25])  # bob, who comes first there
    assert one.unused == ("zoe",)
    assert (one.questions, one.blanks, one.cells) == (4, 1, 8)
    assert (one.dimensions, one.contexts) == (("heart", "skin"), ("day", "night"))


def test_contexts_are_weighted_by_the_problem_file_or_by_their_questions(tmp_path: Path) -> None:
    weighted = make_scenario(tmp_path, context="ward").environment
    by_rows = make_scenario(tmp_path, problem=POOL.split("contexts")[0], context="ward").environment
    assert isinstance(weighted, Outcomes)
    assert isinstance(by_rows, Outcomes)
    assert_allclose(weighted.chances, [0.75, 0.25])
    assert_allclose(by_rows.chances, [0.5, 0.5])
    # Without a column there is one context
    assert make_scenario(tmp_path).environment.contexts == 1


def test_the_description_says_what_a_request_is(tmp_path: Path) -> None:
    question, visit = (
        make_scenario(tmp_path).description,
        make_scenario(tmp_path, dimension="topic", context="ward").description,
    )
    assert question.startswith("A request is one of the 4 questions of table.csv; its reward is")
    assert "one question of each topic (2)" in visit
    assert "of its ward (2 in all)" in visit


def test_optima_are_computed_on_the_expected_request_of_each_context(tmp_path: Path) -> None:
    file, one = read_problem(tmp_path), make_scenario(tmp_path, dimension="topic", context="ward")
    stack, contexts = one.optimum_input(rounds=10, seeds=[0])
    assert contexts is not None
    best = iid_optimum(file.problem, stack, contexts=contexts, floor=False, each_context=True)
    day = 0.75  # heart and skin need one each: of two draws from (1/2, 1/2), 3/4 each
    q = best.policy[1, 1]  # ann at night: (0.5 (1 - (1 - q)^2) + 0.25 (1 - q^2)) / 2
    night = (0.5 * (1 - (1 - q) ** 2) + 0.25 * (1 - q**2)) / 2
    assert_allclose(best.value, 0.75 * day + 0.25 * night, atol=1e-7)
    assert_allclose(q, 2 / 3, atol=1e-3)
    assert make_scenario(tmp_path, dimension="topic").optimum_input(10, [0]).contexts is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            TABLE.replace("3,skin,night", "3,skin,dusk"),
            ["question '3' has the context 'dusk'", "add"],
        ),
        (TABLE.replace("night", "day"), ["no question of context 'night'", "pool.yaml names"]),
        (
            TABLE.replace("bob", "Bob"),
            ["line 1: no column for 1 of the 2", "(did you mean 'Bob'?)"],
        ),
    ],
)
def test_outcomes_that_do_not_match_the_problem_file_are_refused(
    tmp_path: Path, content: str, words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        make_scenario(tmp_path, content, context="ward")
    assert all(word in str(caught.value) for word in words), caught.value


def test_optima_of_skills_and_synthetic_scenarios_use_a_sample_of_rounds(tmp_path: Path) -> None:
    (tmp_path / "skills.csv").write_text("topic,ann,bob\nheart,0.9,0.1\nskin,0.2,0.8\n")
    file = read_problem(tmp_path)
    for one in (scenario_from_skills(file, tmp_path / "skills.csv"), synthetic_scenario(file)):
        assert isinstance(one.environment, Noisy)
        stack, contexts = one.optimum_input(rounds=200, seeds=[0, 1])
        assert (stack.rounds, contexts) == (400, None)
    assert scenario_from_skills(file, tmp_path / "skills.csv").dimensions == ("heart", "skin")
    assert synthetic_scenario(file).synthetic


def test_optima_of_many_values_are_computed_on_fewer_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = synthetic_scenario(read_problem(tmp_path))  # three dimensions, two experts
    monkeypatch.setattr("bylot.scenario.MAX_OPTIMUM_VALUES", 600)
    assert one.optimum_input(rounds=200, seeds=[0, 1]).stack.rounds == 100
    monkeypatch.setattr("bylot.scenario.MAX_OPTIMUM_ROUNDS", 50)
    assert one.optimum_input(rounds=200, seeds=[0, 1]).stack.rounds == 50


def test_the_description_says_if_contexts_are_not_distinguished(tmp_path: Path) -> None:
    (tmp_path / "skills.csv").write_text("topic,ann,bob\nheart,0.9,0.1\n")
    words = "The 2 contexts of pool.yaml are not distinguished"
    file = read_problem(tmp_path, POOL)
    assert words in scenario_from_skills(file, tmp_path / "skills.csv").description
    assert words in synthetic_scenario(file).description
    assert words in make_scenario(tmp_path, dimension="topic").description
    assert words not in make_scenario(tmp_path, context="ward").description
    assert (
        words
        not in synthetic_scenario(read_problem(tmp_path, POOL.split("contexts")[0])).description
    )
