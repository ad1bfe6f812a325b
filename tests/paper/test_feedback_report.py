"""`bylot reproduce default` with one score, member scores and the winner: tables, runs, answer."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hospital
from aslib_files import write_aslib_scenario
from bylot.cli import main
from bylot.policies import find_policy
from bylot_paper import scenarios
from bylot_paper.analysis import RecordGroups
from bylot_paper.claims.judge import describe_missing
from bylot_paper.grid import FEEDBACK_EXPERIMENT, FEEDBACK_POLICIES, list_feedback_cells
from bylot_paper.records import RECORD_SCHEMA
from bylot_paper.report.feedback import KIND_LABELS, build_feedback_section

RUN = ["reproduce", "default", "--data", "synthetic", "--jobs", "2", "--rounds", "1200"]
ONLY_TS = ["--only", "feedback/*/ts/*", "--only", "feedback/*/random/*"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Recorded answers in two categories, and a portfolio of algorithms, as options."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(4)
    skills = np.linspace(0.02, 0.45, 12)
    lines = []
    for n in range(200):
        right = rng.random(12) < (skills if n % 2 else skills[::-1])
        answers = {f"model-{i}": {"correct": bool(one)} for i, one in enumerate(right)}
        lines.append(
            json.dumps({"id": n, "category": "odd" if n % 2 else "even", "answers": answers})
        )
    (folder / "answers.jsonl").write_text("\n".join(lines))
    for name in ("TINY-A", "TINY-B"):
        runs = [
            f"i{n},1,solver-{i},{10 if rng.random() < skill else 99},ok"
            for n in range(100)
            for i, skill in enumerate(skills)
        ]
        write_aslib_scenario(folder / "aslib" / name, runs, ["i0,1,3"], ["size"], cutoff="60")
    return ["--recorded", str(folder / "answers.jsonl"), "--aslib", str(folder / "aslib")]


@pytest.fixture(scope="module")
def small_run(tables: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feedback")
    assert main([*RUN, *tables, *ONLY_TS, "--seeds", "3", "--out", str(folder)]) == 0
    return folder


def test_every_policy_is_played_with_what_it_can_use(small_run: Path) -> None:
    cells = pl.read_parquet(small_run / "records.parquet")
    found = {(row["environment"], row["policy"], row["level"]) for row in cells.to_dicts()}
    scenarios = ("recorded", "recorded-no-contexts", "TINY-A", "TINY-B")
    assert found == {
        *((name, "ts", kind) for name in scenarios for kind in KIND_LABELS),
        *((name, "random", "panel") for name in scenarios),
    }
    groups = cells.partition_by("environment", "policy", "level", as_dict=True)
    mean: Any = {key: part["reward"].to_numpy().mean() for key, part in groups.items()}
    for name in ("recorded", "TINY-A", "TINY-B"):
        assert mean[name, "ts", "panel"] > mean[name, "random", "panel"]
        assert mean[name, "ts", "members"] > mean[name, "ts", "panel"] + 0.01
    # Half of the questions are for the others: contexts are worth much.
    assert mean["recorded", "ts", "members"] > mean["recorded-no-contexts", "ts", "members"] + 0.02
    early, late = cells["reward_250"].to_numpy(), cells["reward_1000"].to_numpy()
    assert (early[cells["policy"] == "ts"] < late[cells["policy"] == "ts"]).mean() > 0.8
    assert (cells["mixture_by_context"] >= cells["mixture"] - 1e-9).all()


def test_the_report_leads_with_the_answer(small_run: Path) -> None:
    text = (small_run / "report.md").read_text()
    found = json.loads((small_run / "default.json").read_text())["feedback"]
    assert found["answer"].startswith("Compared with one score for the panel, ts earns +")
    assert "Contexts (recorded, by category) are worth +" in found["answer"]
    lead = text.index("\n## ")
    assert text[lead:].startswith("\n## Which feedback is worth what\n\n" + found["answer"])
    assert text.count("| ts | member scores |") == 3
    # The first requests are relative to the best fixed panels.
    told = next(x for x in found["lines"] if (x["policy"], x["feedback"]) == ("ts", "members"))
    relative = told["reward_1000"]["mean"] / told["best_fixed"]
    first = text[text.index("first 1,000 requests, relative") :]
    assert f"| ts | member scores | {relative:.4f} ±" in first
    assert len(found["lines"]) == 4 * 4


def test_a_second_run_computes_nothing_and_other_tables_are_another_run(
    small_run: Path, tables: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (small_run / "records.parquet").read_bytes()
    run = [*RUN, *ONLY_TS, "--seeds", "3", "--out", str(small_run)]
    assert main([*run, *tables]) == 0
    assert "48 cells" in (said := capsys.readouterr().err)
    assert "0 to compute" in said
    assert (small_run / "records.parquet").read_bytes() == before
    assert main([*run, *tables[:2]]) == 1
    assert "tables" in capsys.readouterr().err


def test_without_tables_the_experiment_is_left_out_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOSPITAL", "RECORDED", "ASLIB"):
        monkeypatch.delenv(f"BYLOT_{name}", raising=False)
    only = ["--only", "worlds/*/crowd/random/*", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*RUN, *only]) == 0
    assert (
        "without member scores: see --hospital, --recorded and --aslib" in capsys.readouterr().err
    )


def test_what_policies_are_told_about_contexts_changes_no_request(tables: list[str]) -> None:
    found = scenarios.read_question_scenarios(None, Path(tables[1]), None)
    known, ignored = (found[f"recorded{one}"].draw_rounds(500, 3) for one in ("", "-no-contexts"))
    assert_array_equal(known.values, ignored.values)
    assert (known.contexts, ignored.contexts) == (2, 1)
    labelled = scenarios.QuestionScenario(
        found["recorded"].problem, found["recorded"].environment, "", "random"
    ).draw_rounds(500, 3)
    assert_array_equal(known.values, labelled.values)
    assert 0.4 < (labelled.index == known.index).mean() < 0.6


def test_the_hospital_is_played_question_by_question() -> None:
    found = scenarios.read_question_scenarios(hospital.find_folder(), None, None)
    assert [*found] == [f"hospital-questions{x}" for x in ("", "-no-contexts", "-random-contexts")]
    one = found["hospital-questions"]
    assert (one.problem.size, one.problem.draws, one.environment.contexts) == (39, 3, 8)
    assert round(one.references.fixed, 4) == 0.8494
    assert round(one.references.by_context, 4) == 0.8847


def make_feedback_records(rewards: dict[tuple[str, str], float], seeds: int = 20) -> pl.DataFrame:
    """Records of ts in two scenarios: a reward for each scenario and feedback, and noise."""
    rows = []
    for cell in list_feedback_cells(["recorded", "TINY"], seeds):
        if cell.policy != "ts":
            continue
        noise = 0.001 * np.random.default_rng([cell.seed, len(cell.level)]).normal()
        row: dict[str, Any] = dict.fromkeys(RECORD_SCHEMA) | cell._asdict() | {"cell": cell.id}
        reward = rewards[cell.environment, cell.level] + noise
        row |= dict.fromkeys(("reward", "reward_250", "reward_1000"), reward)
        rows.append(row | {"mixture": 0.9, "mixture_by_context": 0.95, "feasible": cell.seed != 7})
    return pl.DataFrame(rows, schema=RECORD_SCHEMA)


def test_the_answer_is_the_mean_gain_over_scenarios() -> None:
    rewards = {
        ("recorded", "panel"): 0.70, ("recorded", "winner"): 0.72, ("recorded", "members"): 0.76,
        ("TINY", "panel"): 0.50, ("TINY", "winner"): 0.52, ("TINY", "members"): 0.50,
    }  # fmt: skip
    blocks, data = build_feedback_section(make_feedback_records(rewards))
    gains = [float(x) for x in re.findall(r"(\+[0-9.]+) ± [0-9.]+ per request", data["answer"])]
    assert_allclose(gains, [0.03, 0.02], atol=1e-3)  # members: 0.06 and 0; the winner: 0.02 twice
    assert "2 scenarios" in data["answer"]
    (line,) = [x for x in data["lines"] if (x["scenario"], x["feedback"]) == ("TINY", "winner")]
    assert abs(line["reward"]["mean"] - 0.52) < 0.001
    assert (line["kept"], line["seeds"]) == (19, 20)
    assert len(blocks) == 6


def test_records_say_what_is_missing() -> None:
    records = make_feedback_records(
        dict.fromkeys([(name, kind) for name in ("recorded", "TINY") for kind in KIND_LABELS], 0.5),
        seeds=4,
    )
    run = {"tables": {"recorded": "", "TINY": ""}, "rounds": 10_000}
    notes = describe_missing(RecordGroups(records), FEEDBACK_EXPERIMENT, run)
    policies: list[Any] = [find_policy(name) for name in FEEDBACK_POLICIES]
    total = 2 * sum(len(policy.feedback) for policy in policies)
    assert notes == [
        f"INCOMPLETE: 6 of the {total} groups of feedback",
        "4 seeds of feedback instead of 20",
    ]
