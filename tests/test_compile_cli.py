"""`bylot compile` compiles ahead of the first use, and says what took how long."""

import json

import pytest

from bylot.cli import compile as compiling
from bylot.cli import main
from bylot.numerics import compile_cache
from bylot.policies import POLICIES


def test_it_names_each_policy_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--policy", "random, greedy", "--json"]) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert data["folder"] == compile_cache.CACHE_FOLDER
    assert list(data["seconds"]) == ["random", "greedy"]
    assert "... random, 1 of 2: " in said.err
    assert "... greedy, 2 of 2: " in said.err


def test_all_means_every_policy_and_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(compiling, "compile_policy", compiled.append)
    assert main(["compile", "--policy", "all"]) == 0
    assert compiled == list(POLICIES)
    assert f"{len(POLICIES)} compiled into " in capsys.readouterr().out


def test_an_unknown_policy_is_refused_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(compiling, "compile_policy", compiled.append)
    assert main(["compile", "--policy", "random,distnict"]) == 1
    assert "did you mean 'distinct'" in capsys.readouterr().err
    assert not compiled


def test_without_a_folder_it_fails_and_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_cache, "CACHE_FOLDER", None)
    assert main(["compile"]) == 1
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
