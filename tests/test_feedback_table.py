"""The table of feedbacks in the documents is what the report measured."""

import json
from pathlib import Path

import pytest

from feedback_table import (
    BEGIN,
    DOCS,
    END,
    FEEDBACK_PAGES,
    NOT_MEASURED,
    fill_page,
    make_feedback_block,
)


@pytest.mark.parametrize("page", FEEDBACK_PAGES)
def test_a_page_shows_what_was_measured(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert fill_page(text, make_feedback_block()) == text, "run docs/hooks/feedback_table.py"


def write_measures(path: Path, kinds: list[str]) -> Path:
    lines = [
        {
            "scenario": "TINY",
            "policy": policy,
            "feedback": kind,
            "seeds": 20,
            "reward": {"mean": 0.5 + 0.1 * n, "error": 0.01},
            "reward_1000": {"mean": 0.4 + 0.1 * n, "error": None},
            "best_fixed": 0.9,
        }
        for policy in ("mine", "other")
        for n, kind in enumerate(kinds)
    ]
    data = {"feedback": {"answer": "Scores help.", "policy": "mine", "lines": lines}}
    path.write_text(json.dumps(data))
    return path


def test_the_block_has_the_answer_and_a_row_for_every_scenario_and_span(tmp_path: Path) -> None:
    block = make_feedback_block(write_measures(tmp_path / "a.json", ["panel", "members"]))
    assert block.startswith("Scores help.\n\nReward per request of `mine`, mean ± standard error")
    assert "| TINY | first 1,000 | 0.400 | – | 0.500 | 0.900 |" in block
    assert "| TINY | all | 0.500 ± 0.010 | – | 0.600 ± 0.010 | 0.900 |" in block
    assert block.count("TINY") == 2
    (tmp_path / "b.json").write_text("{}")
    assert make_feedback_block(tmp_path / "b.json") == NOT_MEASURED


def test_only_what_is_between_the_marks_is_written() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert fill_page(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter"
    assert fill_page(fill_page(page, "a \\1"), "new") == fill_page(page, "new")
    with pytest.raises(ValueError, match="needs the marks"):
        fill_page("before", "new")
