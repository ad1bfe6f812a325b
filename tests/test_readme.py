"""The README runs: every Python block in order, as a reader would paste them into one session."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bylot.cli import main, parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CLAIMS = json.loads((ROOT / "docs" / "paper" / "claims.json").read_text())


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_the_code_of_the_readme_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    for shown in blocks("text"):
        assert shown in printed


def test_every_command_of_the_readme_exists() -> None:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    verbs = [words[1:] for words in commands if words[0] == "bylot"]
    assert len(verbs) == 13
    for words in verbs:
        parser().parse_args(words)
    makefile = (ROOT / "Makefile").read_text()
    for target in [words[1] for words in commands if words[0] == "make"]:
        assert f"\n{target}:" in makefile


def test_the_verdicts_of_the_readme_are_those_of_the_report() -> None:
    counts = Counter(claim["verdict"] for claim in CLAIMS)
    said = f"{len(CLAIMS)} statements about these experiments in the paper, "
    said += f"{counts['holds']} hold and {counts['does not hold']} do not"
    assert said in " ".join(README.split())
    report = {(claim["claim"], claim["measured"], claim["verdict"]) for claim in CLAIMS}
    table = README.split("| what the paper says, in our words")[1].split("\n\n")[0]
    rows = [tuple(re.split(r" \| ", line.strip("| "))) for line in table.splitlines()[2:]]
    assert len(rows) > 10
    assert set(rows) <= report


def test_what_the_readme_shows_is_there() -> None:
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
