"""`bylot evaluate`: tables, JSON, and refusals of targets the log says too little about."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from bylot import Problem, Router, at_least, problem_files, share
from bylot.cli import main
from bylot.errors import SurrogateWarning
from bylot.evaluate import LogEntry, entry_from_decision, write_log
from sample_problem import SKILLS, make_five_expert_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved router after 1,200 decisions, its log, and the same log without propensities."""
    folder, rng = tmp_path_factory.mktemp("evaluate"), np.random.default_rng(0)
    router, log = Router(make_five_expert_problem(), "omd", seed=3), []
    for _ in range(1_200):
        decision = router.decide()
        members = [router.problem.experts.index(name) for name in decision.subset]
        mean = SKILLS[:, members].max(axis=1).mean()
        reward = float(np.clip(mean + 0.1 * rng.normal(), 0, 1))
        router.reward(decision.id, reward)
        log.append(entry_from_decision(decision, reward, router.policy))
    router.save(folder / "router.bylot")
    write_log(folder / "log.jsonl", log)
    write_log(
        folder / "plain.jsonl",
        [one._replace(draws=one.subset, draw_probabilities=(), propensity=None) for one in log],
    )
    (folder / "q.json").write_text('{"ann": 1, "bob": 2, "cat": 4, "dan": 2, "eve": 2}')
    return folder


def run_evaluate(folder: Path, *options: str, log: str = "log.jsonl") -> int:
    """Run `bylot evaluate` and return its exit code."""
    return main(
        ["evaluate", str(folder / log), "--problem-from", str(folder / "router.bylot"), *options]
    )


def test_the_estimate_to_read_comes_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_evaluate(folder, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert run_evaluate(folder) == 0
    first, second, rounds, reason, *_ = out = capsys.readouterr().out.splitlines()
    logged = f"{data['logged']['reward']:.4g}"
    uniform, now = data["targets"]  # the latter was learned from this log
    for line, one, name, rest in (
        (first, uniform, "doubly robust", f"more than the log ({logged}); its costs are outside 1"),
        (second, now, "as played", "; its costs are inside all limits."),
    ):
        assert one["main_estimate"] == name
        low, value, high = (one["estimates"][name][x] for x in ("low", "value", "high"))
        assert line.startswith(
            f"{one['target']} would have earned {value:.4g} per request ({name}, 95% "
            f"interval {low:.4g} to {high:.4g}), "
        )
        assert rest in line
    assert rounds == f"1200 of 1200 rounds used; mean reward as logged: {logged}"
    assert reason.startswith("doubly robust: unbiased")
    assert not any("set weights" in line for line in out)


def test_details_print_all_estimates_and_the_coverage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ("uniform", "now", f"draws:{folder / 'q.json'}")
    assert run_evaluate(folder, "--details", *(f"--target={one}" for one in targets)) == 0
    out = capsys.readouterr().out
    assert out.startswith("uniform would have earned ")
    assert "\n1200 of 1200 rounds used" in out
    for words in (
        "as logged",
        "uniform",
        "now",
        "doubly robust",
        "finite-sample",
        "95% from",
        "<= 3",
        "effective rounds",
    ):
        assert words in out
    assert "draw weights" in out  # omd draws independently
    assert "\nas played: the mean reward of rounds whose panels were drawn from" in out
    assert "now: now was learned from this log, " in out
    assert "Use --details" not in out


def test_with_few_effective_rounds_the_finite_sample_estimate_is_the_one_to_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--target", "uniform", "--since", "1150", "--least", "1"]
    assert run_evaluate(folder, "--json", *options) == 0
    (one,) = json.loads(capsys.readouterr().out)["targets"]
    assert one["effective"] < 100
    found = one["estimates"]["finite-sample"]
    assert run_evaluate(folder, *options) == 0
    out = capsys.readouterr().out
    interval = f"(finite-sample, 95% interval {found['low']:.4g} to {found['high']:.4g})"
    assert out.startswith(f"uniform would have earned {found['value']:.4g} per request {interval}")
    assert "the others may be too short" in out


def test_if_the_interval_is_the_whole_range_the_log_does_not_say_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folder, "--target", "uniform", "--since", "1190", "--least", "1") == 0
    assert capsys.readouterr().out.startswith(
        "The log does not say what uniform would have earned (finite-sample, 95% interval 0 to 1)"
    )


def test_json_has_the_same_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"draws:{folder / 'q.json'}"
    assert (
        run_evaluate(folder, "--json", "--target", spec, "--target", "sets:ann=1,bob=2,cat=4") == 0
    )
    report = json.loads(capsys.readouterr().out)
    one, other = report["targets"]
    assert (one["target"], report["refused"], report["logged"]["rounds"]) == (spec, {}, 1200)
    assert next(iter(one["estimates"])) == "draw weights"
    assert "draw weights" not in other["estimates"]
    robust = one["estimates"]["doubly robust"]
    assert robust["low"] < robust["value"] < robust["high"]
    assert one["costs"]["junior"] == pytest.approx((1 - (7 / 11) ** 2) + (1 - (9 / 11) ** 2))


def test_a_refused_target_sets_the_exit_code_and_others_are_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folder, "--target", "set:ann,eve", "--target", "uniform") == 1
    out, err = capsys.readouterr()
    assert "uniform" in out
    assert "set:ann,eve: 1200 rounds are worth only" in err


def test_if_all_targets_are_refused_rewards_and_costs_are_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folder, "--json", "--target", "uniform") == 0
    exact = json.loads(capsys.readouterr().out)
    assert run_evaluate(folder, "--target", "uniform", "--least", "1200", "--details") == 1
    out, err = capsys.readouterr()
    assert out.startswith("uniform: no estimate, as the log says too little about it\n")
    assert f"mean reward as logged: {exact['logged']['reward']:.4g}\n" in out
    assert f"as logged  mean      {exact['logged']['reward']:.4f}" in out
    assert "cost per request  bound" in out
    assert f"{exact['targets'][0]['costs']['usd']:.4g} outside" in out
    assert "an interval needs at least 1200" in err
    assert run_evaluate(folder, "--json", "--target", "uniform", "--least", "1200") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["refused"]["uniform"]["costs"] == exact["targets"][0]["costs"]
    assert "an interval needs at least" in report["refused"]["uniform"]["reason"]


@pytest.mark.parametrize(("policy", "guarded"), [("distinct", True), ("omd", False)])
def test_a_note_says_that_the_target_of_a_guarded_router_has_no_guard(
    folder: Path, policy: str, guarded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    router = Router(make_five_expert_problem(), policy, seed=3)
    router.decide()
    router.save(folder / f"{policy}.json")
    target = ["--target", f"router:{folder / policy}.json"]
    for options in (target, [*target, "--apprentice"], [*target, "--least", "1e6"]):
        run_evaluate(folder, *options)
        assert (
            "the router itself adapts it and guards its limits" in capsys.readouterr().out
        ) == guarded


def test_reading_a_router_with_an_empty_surrogate_does_not_warn(
    folder: Path, tmp_path: Path
) -> None:
    quotas = [at_least(share(name, [name]), 0.5) for name in make_five_expert_problem().experts[:3]]
    problem = Problem(make_five_expert_problem().experts, {}, quotas, draws=2)
    with pytest.warns(SurrogateWarning):
        Router(problem, "omd").save(tmp_path / "empty.json")
    arguments = ["--problem-from", str(tmp_path / "empty.json"), "--target", "uniform"]
    assert main(["evaluate", str(folder / "log.jsonl"), *arguments]) == 0


def test_a_router_without_a_distribution_is_not_a_default_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    router = Router(make_five_expert_problem(), "greedy")
    write_log(tmp_path / "log.jsonl", [entry_from_decision(router.decide(), 0.5, router.policy)])
    router.save(tmp_path / "router.bylot")
    assert run_evaluate(tmp_path) == 1
    assert "bylot: uniform: none of 1 rounds can be used" in capsys.readouterr().err
    assert run_evaluate(tmp_path, "--target", "now") == 1
    assert "use uniform, set:" in capsys.readouterr().err


def test_since_evaluates_the_later_part_of_a_log(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folder, "--target", "uniform", "--since", "700") == 0
    assert "\n500 of 500 rounds used; " in capsys.readouterr().out
    assert run_evaluate(folder, "--since", "1200") == 1
    assert "the log has no decision from 1200 on" in capsys.readouterr().err


def test_the_level_and_the_range_widen_intervals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = []
    for options in ([], ["--level", "0.99"], ["--rewards", "-1", "2"]):
        assert run_evaluate(folder, "--json", "--target", "uniform", *options) == 0
        found = json.loads(capsys.readouterr().out)["targets"][0]["estimates"]
        widths.append(
            [found[name]["high"] - found[name]["low"] for name in ("set weights", "finite-sample")]
        )
    assert widths[1][0] > widths[0][0]
    assert widths[2][1] > widths[0][1]


def test_apprentice_reports_agreement_but_no_rewards(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_evaluate(folder, log="plain.jsonl") == 1
    assert "have no propensity" in capsys.readouterr().err
    assert run_evaluate(folder, "--apprentice", log="plain.jsonl") == 0
    out = capsys.readouterr().out
    assert "same panel" in out
    assert "They say nothing about the rewards of the target's panels" in out
    assert run_evaluate(folder, "--apprentice", "--json", log="plain.jsonl") == 0
    uniform, now = json.loads(capsys.readouterr().out)["targets"]
    assert uniform["overlap"] == pytest.approx(2 / 5)  # any two of five
    assert 0 < now["same"] < now["jaccard"] < now["overlap"] < 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "best"], "invalid target 'best': expected uniform, now"),
        (["--target", "draws:"], "invalid target 'draws:'"),
        (["--target", "draws:ann=much"], "could not convert string to float: 'much'"),
        (["--target", "draws:nowhere.json"], "cannot read nowhere.json"),
        (["--target", "sets:{folder}/log.jsonl"], "is not JSON"),
        (["--target", "draws:{folder}/list.json"], "expected an object"),
        (
            ["--target", "router:nowhere.json"],
            "nowhere.json does not exist; use a file written by save()",
        ),
        (["--target", "router:nowhere.json"], "target 'router:nowhere.json': nowhere.json does"),
        (["--target", "set:ann,bop"], "unknown expert 'bop'"),
        (["--target", "draws:ann=1,bob=2,ann=2"], "duplicate key 'ann'"),
        (["--target", "set:ann,ann"], "names 'ann' twice"),
        (["--rewards", "0", "0.1"], "log.jsonl, line 1: the reward 0."),
        (["--rewards", "0", "0.1"], "declare the range"),
        (["--rewards", "1", "0"], "expected two finite numbers, low < high"),
    ],
)
def test_invalid_targets_and_ranges_are_explained(
    folder: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "list.json").write_text("[1]")
    assert run_evaluate(folder, *(option.format(folder=folder) for option in options)) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "spec",
    ["set:ann,{}", "draws:ann=1,{}=2", "sets:{folder}/weights.json", "draws:{folder}/by.json"],
)
def test_a_departed_expert_is_named_as_such_and_not_as_a_typo(
    folder: Path, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_with(name: str) -> str:
        (folder / "weights.json").write_text(json.dumps({"ann": 1, "bob": 1, name: 2}))
        (folder / "by.json").write_text(json.dumps({"ward": {"ann": 1, name: 2}}))
        expected = spec.format(name, folder=folder)
        assert (
            run_evaluate(folder, "--gone", "evi", "--target", "uniform", "--target", expected) == 1
        )
        err = capsys.readouterr().err
        assert f"bylot: target {expected!r}: " in err
        return err

    assert "'evi' has left the pool" in run_with("evi")
    assert "unknown expert 'evo'; did you mean 'eve'?" in run_with("evo")


def test_another_router_can_be_the_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"router:{folder / 'router.bylot'}"
    assert run_evaluate(folder, "--json", "--target", spec, "--target", "now") == 0
    one, other = json.loads(capsys.readouterr().out)["targets"]
    assert one["estimates"] == other["estimates"]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--level", "95", "invalid value '95': expected a number between 0 and 1"),
        ("--level", "high", "invalid value 'high': expected a number between 0 and 1"),
        ("--least", "nan", "invalid value 'nan': expected a number of 0 or more"),
        ("--least", "-5", "invalid value '-5': expected a number of 0 or more"),
        ("--least", "inf", "invalid value 'inf': expected a number of 0 or more"),
    ],
)
def test_invalid_options_are_usage_errors(
    folder: Path, option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_evaluate(folder, f"{option}={value}")
    assert f"argument {option}: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_the_problem_can_come_from_a_problem_file(
    folder: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = folder / f"pool.{ending}"
    text = problem_files.write(make_five_expert_problem()) + "rewards: {from: 0, to: 2}\n"
    pool.write_text(text if ending == "yaml" else json.dumps(yaml.safe_load(text)))
    arguments = ["evaluate", str(folder / "log.jsonl"), "--problem-from", str(pool), "--json"]
    assert main(arguments) == 0
    (one,) = json.loads(capsys.readouterr().out)["targets"]
    assert run_evaluate(folder, "--json", "--target", "uniform", "--rewards", "0", "2") == 0
    assert json.loads(capsys.readouterr().out)["targets"] == [one]
    assert main([*arguments, "--target", "now"]) == 1
    assert "use --problem-from ROUTER.bylot" in capsys.readouterr().err
    assert main([*arguments, "--target", f"router:{folder / 'router.bylot'}"]) == 0


def test_numbers_that_are_not_finite_are_null_in_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One round has no standard error."""
    certain = LogEntry("d0", 0, ("ann", "ann"), 0.5, draw_probabilities=(1.0, 1.0))
    write_log(folder / "one.jsonl", [certain])
    assert run_evaluate(folder, "--json", "--least=0", "--target=set:ann", log="one.jsonl") == 0
    text = capsys.readouterr().out
    assert "Infinity" not in text
    assert "NaN" not in text
    (target,) = json.loads(text)["targets"]
    assert target["estimates"]["set weights"]["error"] is None
    for one in target["estimates"].values():  # nor an interval
        assert (one["low"], one["high"]) == (0.0, 1.0)
