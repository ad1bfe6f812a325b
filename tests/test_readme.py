"""The README runs, and the numbers it repeats are those of the committed reports."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bylot import policies
from bylot.cli import main, make_parser
from documents import find_commands, run_page

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REPRODUCE = (ROOT / "docs" / "reproduce.md").read_text()
CLAIMS = json.loads((ROOT / "docs" / "paper" / "claims.json").read_text())
CHECKS = json.loads((ROOT / "docs" / "beyond" / "beyond.json").read_text())


def test_the_code_of_the_readme_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(README, "README.md", capsys)


def test_scores_of_members_fit_the_ten_lines_of_the_readme() -> None:
    code = README.partition("```python\n")[2].partition("```")[0].partition("router.reward")[0]
    (scores,) = re.findall(r"reward\(decision.id, (members=.*)\)`", README)
    names: dict[str, Any] = {}
    exec(code.replace("seed=7", 'seed=7, feedback="members"'), names)
    exec(f"receipt = router.reward(decision.id, {scores})", names)
    assert (names["receipt"], names["decision"].propensity) == ("learned", None)


def test_every_command_of_the_readme_exists() -> None:
    lines = [words for words in find_commands(README) if words[0] != "cd"]
    verbs = [words[1:] for words in lines if words[0] == "bylot"]
    assert len(verbs) == 5
    for words in verbs:
        make_parser().parse_args(words)
    makefile = (ROOT / "Makefile").read_text()
    targets = [words[1] for words in lines if words[0] == "make"]
    assert targets == ["demo", "serve", "paper"]
    for target in targets:
        assert f"\n{target}:" in makefile


def test_the_readme_is_short_and_its_lines_too() -> None:
    assert len(README.splitlines()) <= 170
    assert find_long_lines(README) == []


def test_a_long_line_is_found_unless_it_is_a_row_of_a_table() -> None:
    assert find_long_lines(f"# Title\n{'x' * 120}\n| {'x' * 120} |\n") == ["x" * 120]


def find_long_lines(page: str) -> list[str]:
    """Lines of 120 characters or more, rows of tables excepted."""
    return [line for line in page.splitlines() if len(line) >= 120 and not line.startswith("|")]


def test_what_to_run_first_is_on_the_first_screen() -> None:
    first = README[: README.index("make demo")]
    assert len(first.split()) < 150  # half a minute of reading
    assert "\n#" not in README[README.index("## Install") + 1 : README.index("make demo")]


def test_all_documents_count_the_same_policies() -> None:
    assert f"{len(policies.POLICY_CLASSES)} policies" in README
    words = "eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.search(rf"\b({words}) policies", path.read_text()), path


def test_the_pictures_of_the_readme_are_small() -> None:
    for link in re.findall(r"\]\((docs/[^)]+\.png)\)", README):
        assert 10_000 < (ROOT / link).stat().st_size < 250_000


def test_the_verdict_counts_are_those_of_the_report() -> None:
    counts = Counter(claim["verdict"] for claim in CLAIMS)
    verdicts = f"{counts['holds']} hold and {counts['does not hold']} do not"
    readme, reproduce = (" ".join(page.split()) for page in (README, REPRODUCE))
    assert f"Of the paper's {len(CLAIMS)} claims about these experiments, {verdicts}" in readme
    assert f"Of {len(CLAIMS)} claims about these experiments in the paper, {verdicts}" in reproduce


def test_the_claims_of_the_page_are_those_of_the_report() -> None:
    rows = read_table("| claim, in our words")
    assert len(rows) > 10
    assert set(rows) <= list_verdicts(CLAIMS)


def test_the_checks_of_the_page_are_those_of_the_report() -> None:
    rows = read_table("| requirement")
    assert len(rows) == 8
    assert set(rows) <= list_verdicts(CHECKS)
    text = (ROOT / "docs" / "beyond" / "report.md").read_text()
    for policy, kept in (("ts-bwk", 92), ("cbwk", 139)):
        assert re.search(rf"\| {policy} \|.*\| {kept}/160 \|", text)
    assert "TS-BwK in 92 of 160 and CBwK in 139" in " ".join(REPRODUCE.split())
    assert "160 of 160 runs (TS-BwK: 92, CBwK: 139 of 160)" in README
    assert re.search(r"\| distinct \| [\d.]+ \| [\d.]+ \| 0.30 \|", text)
    assert "at most 0.30 of the regret of the paper's algorithm" in README


def test_the_speeds_of_the_readme_are_those_of_the_performance_page() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    assert "(`bench simulate`) | 4.5 to 5.3 million/s" in page
    assert "4.5 to 5.3 million rounds" in README
    assert re.search(r"\(`bench service`\).*\| 2.5 to 2.8 \|", page)
    assert "2.5 to 2.8 times the CPU" in README


def read_table(head: str) -> list[tuple[str, ...]]:
    """The rows of a table of docs/reproduce.md."""
    table = REPRODUCE.split(head)[1].split("\n\n")[0]
    return [tuple(re.split(r" \| ", line.strip("| "))) for line in table.splitlines()[2:]]


def list_verdicts(rows: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Claim, measurement and verdict of each row of a report."""
    return {(row["claim"], row["measured"], row["verdict"]) for row in rows}


def test_the_links_of_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 4
    for link in links:
        assert (ROOT / link).is_file(), link


@pytest.mark.slow
def test_the_report_in_the_documents_is_that_of_this_code(tmp_path: Path) -> None:
    data = ROOT.parent / "shared" / "data" / "trec"
    if not data.is_dir():
        pytest.skip("the TREC data is not beside the repository")
    run = ["reproduce", "all", "--variants", "--data", str(data), "--out", str(tmp_path)]
    assert main(run) == 0
    assert json.loads((tmp_path / "claims.json").read_text()) == CLAIMS
    assert json.loads((tmp_path / "beyond.json").read_text()) == CHECKS
