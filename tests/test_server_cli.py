"""The verbs of the service: a server, its keys and its routers from a shell."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from bylot import Client, errors
from bylot.cli import given_limits, main
from bylot.problem.calendar import WINDOW_NAMES, WindowName
from bylot.problem.limits import WhenSpent
from bylot_bench.http_load import ServerProcess
from documents import find_blocks
from server_process import SOURCES, serve_store

ROOT = Path(__file__).parent.parent

POOL = """
draws: 2
costs: {usd: dollars, junior: people}
experts:
  - {name: ann, usd: 4.0, junior: 0}
  - {name: bob, usd: 3.0, junior: 0}
  - {name: cat, usd: 1.0, junior: 1}
  - {name: eve, usd: 0.5, junior: 1}
limits:
  - {cost: usd, at_most: 3.0, per: request}
  - {cost: junior, at_least: 0.3, per: request}
"""

COSTS = {"usd": 2.0, "junior": 0.0}

RunVerb = Callable[..., str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of the server below."""
    return f"sqlite:///{tmp_path_factory.mktemp('served')}/bylot.db"


@pytest.fixture(scope="module")
def server(store: str) -> Iterator[ServerProcess]:
    """One server for all tests of this file that need no keys."""
    with serve_store(store) as server:
        yield server


@pytest.fixture
def problem_file(tmp_path: Path) -> str:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL, encoding="utf-8")
    return str(file)


@pytest.fixture
def run_verb(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RunVerb:
    """Run a verb against the server and return what it prints."""
    monkeypatch.setenv("BYLOT_SERVER", server.url)

    def verb(*words: str, exit_code: int = 0) -> str:
        assert main(words) == exit_code
        printed = capsys.readouterr()
        return printed.out if exit_code == 0 else printed.err

    return verb


def test_the_life_of_a_router_from_creation_to_deletion(
    run_verb: RunVerb, problem_file: str
) -> None:
    created = run_verb("router", "create", "life", problem_file, "--policy", "omd")
    assert created == "life: 4 experts, policy omd\n"
    first = run_verb("decide", "life", "--context", "chest pain").split()[0]
    assert re.fullmatch(r"life\.\d+\.1\.[0-9a-f]{8}", first)
    assert run_verb("reward", first, "--spend", "usd=2", "--as", "gateway") == "settled\n"
    assert run_verb("reward", first, "0.5", "--spend", "usd=2.5") == "learned\n"
    assert run_verb("reward", first, "0.5", "--spend", "usd=2.5") == "duplicate\n"
    assert "already has reward 0.5" in run_verb("reward", first, "0.6", exit_code=1)
    shown = run_verb("router", "show", "life")
    assert shown.startswith("life, inside, policy omd, configuration version 1\n1 decisions, 1 re")
    assert "usd <=" in shown
    assert "life" in run_verb("router", "list")
    assert "add --yes" in run_verb("router", "delete", "life", exit_code=2)
    assert run_verb("router", "delete", "life", "--yes") == "life is deleted\n"
    assert "no router named 'life'" in run_verb("decide", "life", exit_code=1)


def test_scores_of_members_and_winners_are_sent_from_the_command_line(
    run_verb: RunVerb, problem_file: str
) -> None:
    words = ("router", "create", "judged", problem_file, "--policy", "omd", "--feedback", "members")
    created = run_verb(*words)
    assert created.startswith("judged: 4 experts, policy omd\nwarning: omd ignores scores of memb")
    decision = json.loads(run_verb("decide", "judged", "--json"))
    id, panel = decision["id"], decision["subset"]
    scores = [word for name in panel for word in ("--member", f"{name}=pass")]
    spend = "usd=" + ",".join(f"{name}:0.5" for name in panel)
    assert run_verb("reward", id, *scores, "--spend", spend) == "learned\n"
    assert run_verb("reward", id, "1", *scores, "--spend", spend) == "duplicate\n"
    error = run_verb("reward", id, "1", "--winner", panel[0], exit_code=1)
    assert "create it with feedback='winner'" in error
    assert "invalid reward None" in run_verb("reward", id, exit_code=1)
    shown = run_verb("router", "show", "judged")
    assert shown.startswith("judged, inside, policy omd, feedback members, configuration ")
    assert "the policy ignores scores of members" in shown


def test_every_verb_can_print_json(run_verb: RunVerb, problem_file: str) -> None:
    created = json.loads(
        run_verb("router", "create", "plain", problem_file, "--policy", "omd", "--json")
    )
    assert created == {"created": "plain", "policy": "omd"}
    words = ("decide", "plain", "--available", "ann, eve", "--as", "visit-1", "--json")
    decision = json.loads(run_verb(*words))
    assert set(decision["subset"]) <= {"ann", "eve"}
    assert json.loads(run_verb(*words)) == decision
    printed = json.loads(run_verb("reward", decision["id"], "pass", "--json"))
    assert printed == {"decision": decision["id"], "receipt": "learned"}
    view = json.loads(run_verb("router", "show", "plain", "--json"))
    assert view["config"]["problem"]["experts"] == ["ann", "bob", "cat", "eve"]
    assert "plain" in [
        one["name"] for one in json.loads(run_verb("router", "list", "--json"))["routers"]
    ]
    assert main(["reward", "plain.1.77.9f3ab01c", "1", "--json"]) == 1


def test_policies_with_settings_are_shown_for_routers(run_verb: RunVerb, problem_file: str) -> None:
    default = run_verb("router", "create", "usual", problem_file)
    assert default == "usual: 4 experts, policy auto: distinct\n"
    words = "noisy-or:explore=0.5,pace=None"
    assert f"policy {words}\n" in run_verb(
        "router", "create", "mine", problem_file, "--policy", words
    )
    auto_spec = "auto:propensities=false"
    assert f"policy {auto_spec}: noisy-or\n" in run_verb(
        "router", "create", "bold", problem_file, "--policy", auto_spec
    )
    listed = [line.split() for line in run_verb("router", "list").splitlines()]
    assert listed[0] == ["name", "policy", "created"]
    policies = {line[0]: line[1] for line in listed}
    assert [policies[name] for name in ("usual", "mine", "bold")] == ["distinct", words, "noisy-or"]
    routers = json.loads(run_verb("router", "list", "--json"))["routers"]
    assert {one["name"]: one["policy"] for one in routers}["mine"] == words
    assert run_verb("router", "show", "mine").startswith(
        f"mine, not started, policy {words}, configuration version 1"
    )
    config = json.loads(run_verb("router", "show", "mine", "--json"))["config"]
    settings = {"explore": 0.5, "pace": None, "guard": True, "forget": None}
    assert config["policy"] == {"name": "noisy-or", **settings}
    wrong = run_verb(
        "router", "create", "no", problem_file, "--policy", "noisy-or:explor=1", exit_code=1
    )
    assert "did you mean 'explore'? Its settings are guard, explore, pace" in wrong
    wrong = run_verb("router", "create", "no", problem_file, "--policy", "best", exit_code=1)
    assert "the ones there are: auto, distinct, noisy-or" in wrong


def test_a_log_of_a_changed_pool_can_be_evaluated(
    server: ServerProcess, run_verb: RunVerb, problem_file: str, tmp_path: Path
) -> None:
    run_verb("router", "create", "moved", problem_file, "--policy", "distinct:eps=0.9")
    with Client(server.url) as client:
        router = client.router("moved")
        for n in range(600):
            if n == 300:
                router.edit(remove=["bob"], add=[{"name": "zoe", **COSTS}])
            decision = router.decide()
            router.reward(decision.id, 0.9 if "cat" in decision.subset else 0.2)
    printed = run_verb("evaluate", "--router", "moved", "--least", "20")
    assert "\n600 of 600 rounds used; " in printed
    assert "bob: no longer in the pool, so no target asks them" in printed
    log = tmp_path / "log.jsonl"
    log.write_text(run_verb("router", "log", "moved"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["available"] == ["ann", "bob", "cat", "eve"]
    assert lines[-1]["available"] is None
    words = (str(log), "--router", "moved", "--least", "20")
    assert "--gone NAME" in run_verb("evaluate", *words, exit_code=1)
    assert run_verb("evaluate", *words, "--gone", "bob") == printed
    departed = run_verb("evaluate", "--router", "moved", "--target", "set:bob,cat", exit_code=1)
    assert "target 'set:bob,cat': 'bob' has left the pool" in departed
    later = run_verb("evaluate", "--router", "moved", "--least", "20", "--since", "300")
    assert "\n300 of 300 rounds used; " in later
    assert "no longer" not in later


def test_a_log_of_noisy_or_is_evaluated_by_its_exploration_rounds(
    server: ServerProcess, run_verb: RunVerb, problem_file: str
) -> None:
    for name, policy in (("open", "noisy-or:explore=0.5"), ("shut", "noisy-or")):
        run_verb("router", "create", name, problem_file, "--policy", policy)
        with Client(server.url) as client:
            router = client.router(name)
            for _ in range(300):
                decision = router.decide()
                router.reward(decision.id, 0.9 if "cat" in decision.subset else 0.2)
    found = json.loads(run_verb("evaluate", "--router", "open", "--least", "10", "--json"))
    (uniform,) = found["targets"]
    assert 100 < uniform["counts"]["used"] == 300 - uniform["counts"]["unknown_propensity"] < 200
    robust = uniform["estimates"]["doubly robust"]
    assert abs(robust["value"] - 0.55) < 4 * robust["error"]  # cat is in half of all pairs
    assert "\npropensity unknown; usd" in run_verb("decide", "shut")
    refused = run_verb("evaluate", "--router", "shut", exit_code=1)
    assert "301 have no propensity" in refused
    assert "from now on use noisy-or:explore=0.02, or distinct" in refused


def test_a_router_can_be_edited(run_verb: RunVerb, problem_file: str) -> None:
    run_verb("router", "create", "edits", problem_file, "--policy", "omd", "--wait", "60")
    words = ("--at-most", "usd=2.5", "--at-least", "usd=0.6", "--drop", "junior", "--pause", "bob")
    assert run_verb("router", "edit", "edits", *words) == "edits: version 2\n"
    second_edit = (
        "--add",
        "zoe:usd=2,junior=0",
        "--remove",
        "cat",
        "--resume",
        "bob",
        "--wait",
        "none",
        "--min-draws",
        "1",
    )
    run_verb("router", "edit", "edits", *second_edit)
    config = json.loads(run_verb("router", "show", "edits", "--json"))["config"]
    assert config["version"] == 3
    assert config["problem"]["experts"] == ["ann", "bob", "eve", "zoe"]
    limits = [{"cost": "usd", "at_most": 2.5}, {"cost": "usd", "at_least": 0.6}]
    assert config["problem"]["limits"] == limits
    assert config["problem"]["min_draws"] == 1
    assert config.get("wait") is None
    assert "no such limit" in run_verb("router", "edit", "edits", "--drop", "juniors", exit_code=1)
    assert "usd" in run_verb("router", "edit", "edits", "--at-most", "usd=0.1", exit_code=1)


def test_limits_of_the_calendar_can_be_edited(
    run_verb: RunVerb, problem_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_verb("router", "create", "daily", problem_file, "--policy", "distinct")

    def edit(*words: str, exit_code: int = 0) -> str:
        return run_verb("router", "edit", "daily", *words, exit_code=exit_code)

    def list_limits() -> list[Any]:
        config = json.loads(run_verb("router", "show", "daily", "--json"))["config"]
        return [one for one in config["problem"]["limits"] if one.get("cost") == "usd"]

    (usual,) = list_limits()
    edit("--at-most", "usd=900/day", "--zone", "Europe/Berlin", "--when-spent", "fewer")
    day = {"cost": "usd", "at_most": 900.0, "per": "day", "zone": "Europe/Berlin"}
    assert list_limits() == [usual, {**day, "when_spent": "fewer"}]
    run_verb("decide", "daily")
    assert "of at most 900 this day" in run_verb("router", "show", "daily")
    edit("--at-most", "usd=950/day", "--at-most", "usd=9000/month", "--at-most", "usd=3")
    month = {"cost": "usd", "at_most": 9_000.0, "per": "month"}
    changed = {**day, "at_most": 950.0, "when_spent": "fewer"}
    assert list_limits() == [{**usual, "at_most": 3.0}, changed, month]
    edit("--drop", "usd/request")
    assert list_limits() == [changed, month]
    refused = edit("--at-most", "usd=4", exit_code=1)
    assert "usd is limited per day and month; write usd=4/day, usd=4/month or usd=4/req" in refused
    edit("--at-most", "usd=4/request", "--drop", "usd/month")
    assert list_limits() == [changed, {"cost": "usd", "at_most": 4.0}]
    assert "did you mean 'usd/day'?" in edit("--drop", "usd/days", exit_code=1)
    assert "did you mean 'Europe/Berlin'?" in edit(
        "--at-most", "usd=1/hour", "--zone", "Europe/Berln", exit_code=1
    )
    with pytest.raises(SystemExit):
        edit("--at-most", "usd=1/year")
    with pytest.raises(SystemExit):
        edit("--at-most", "usd=30/month:tenant")
    assert "as in usd=30/month/tenant" in capsys.readouterr().err


def test_tenants_are_shown_and_have_bounds_of_their_own(
    run_verb: RunVerb, problem_file: str
) -> None:
    run_verb("router", "create", "metered", problem_file, "--policy", "noisy-or")

    def edit(*words: str, exit_code: int = 0) -> str:
        return run_verb("router", "edit", "metered", *words, exit_code=exit_code)

    def list_limits() -> list[Any]:
        config = json.loads(run_verb("router", "show", "metered", "--json"))["config"]
        return [one for one in config["problem"]["limits"] if one.get("cost") == "usd"]

    (usual,) = list_limits()
    edit("--at-most", "usd=20/month/tenant", "--at-most", "usd=4@icu,er", "--zone", "Europe/Berlin")
    monthly = {"cost": "usd", "at_most": 20.0, "per": "month", "scope": "tenant"}
    some = {"cost": "usd", "at_most": 4.0, "where": {"context": ["icu", "er"]}}
    assert list_limits() == [usual, {**monthly, "zone": "Europe/Berlin"}, some]
    assert "names none" in run_verb("decide", "metered", exit_code=1)
    made = json.loads(run_verb("decide", "metered", "--tenant", "acme/eu", "--json"))
    spent = f"{made['spend']['usd']:g}"
    shown = run_verb("router", "tenant", "metered", "acme/eu")
    assert shown.startswith("acme/eu, a tenant of metered\n")
    line = f"usd per month for each tenant: {spent} of 20 spent, "
    assert line in shown
    assert "left; 1 request until 20" in shown
    assert shown.endswith("-01 00:00 Europe/Berlin\n")
    assert run_verb("router", "tenants", "metered").startswith(f"acme/eu: {line}")
    (listed,) = json.loads(run_verb("router", "tenants", "metered", "--json"))["tenants"]
    assert (listed["tenant"], listed["windows"][0]["requests"]) == ("acme/eu", 1)
    own = run_verb("router", "tenant", "metered", "acme/eu", "--at-most", "usd=50/month")
    assert f"{spent} of 50 (its own bound) spent" in own
    view = json.loads(run_verb("router", "tenant", "metered", "acme/eu", "--json"))
    assert (view["windows"][0]["bound"], view["windows"][0]["own"]) == (50.0, True)
    assert line in run_verb("router", "tenant", "metered", "acme/eu", "--clear")
    refused = run_verb("router", "tenant", "metered", "b", "--at-most", "usd=5", exit_code=1)
    assert "write usd=5/month" in refused
    refused = run_verb("router", "tenant", "metered", "b", "--at-most", "usd=5/day", exit_code=1)
    assert "there is one of usd per month for each tenant" in refused
    assert "mean 'usd/month/tenant'" in edit("--drop", "usd/month/tenants", exit_code=1)
    edit("--drop", "usd/request", "--drop", "usd/request@icu,er")
    refused = edit("--at-most", "usd=9", exit_code=1)
    assert "limited per month for each tenant; write usd=9/month/tenant or usd=9/req" in refused
    edit("--drop", "usd/month/tenant")
    assert list_limits() == []
    assert "no limits for each tenant" in run_verb("router", "tenant", "metered", "b", exit_code=1)


def test_the_windows_of_the_command_line_are_those_of_problems() -> None:
    assert get_args(WindowName) == WINDOW_NAMES
    assert tuple(given_limits.WHEN_SPENT) == get_args(WhenSpent)


def test_a_served_router_can_be_evaluated_and_replayed(
    server: ServerProcess, store: str, run_verb: RunVerb, problem_file: str, tmp_path: Path
) -> None:
    run_verb("router", "create", "settled", problem_file, "--policy", "omd")
    with Client(server.url) as client:
        router = client.router("settled")
        for n in range(300):
            decision = router.decide(available=["ann", "cat", "eve"] if n % 7 == 0 else None)
            if n % 10:
                router.reward(decision.id, 0.9 if "ann" in decision.subset else 0.2)
        router.cancel(router.decide(defer=True).id)
        router.decide(defer=True)
    log = tmp_path / "log.jsonl"
    log.write_text(run_verb("router", "log", "settled"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 300
    assert lines[0]["available"] == ["ann", "cat", "eve"]
    assert [line["reward"] is None for line in lines[:11]] == [True, *[False] * 9, True]
    printed = run_verb("evaluate", "--router", "settled", "--target", "uniform", "--least", "20")
    assert "\n270 of 300 rounds used (left out: 30 without reward); " in printed
    words = (str(log), "--router", "settled", "--target", "uniform", "--least", "20")
    assert run_verb("evaluate", *words) == printed
    assert "is known to its server only" in run_verb(
        "evaluate", "--router", "settled", "--target", "now", exit_code=1
    )
    replayed = run_verb("replay", "settled", "--store", store)
    assert "302 decisions, all verified" in replayed
    assert "no router named 'unknown'" in run_verb(
        "replay", "unknown", "--store", store, exit_code=1
    )


def test_keys_limit_what_a_caller_may_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], problem_file: str
) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"

    def run_keys_verb(*words: str) -> str:
        assert main(["keys", *words, "--store", store]) == 0
        return capsys.readouterr().out

    for words in (["list"], ["revoke", "unknown"]):
        assert main(["keys", *words, "--store", store]) == 1
        assert f"no store at {store}" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.db"))
    created = run_keys_verb("create", "me", "--scope", "admin")
    assert store in created
    admin = created.split()[0]
    decide_key = json.loads(run_keys_verb("create", "shop", "--scope", "decide", "--json"))
    assert admin not in run_keys_verb("list")
    assert "shop" in run_keys_verb("list")
    with serve_store(store) as server:
        words = [
            "router",
            "create",
            "triage",
            problem_file,
            "--policy",
            "omd",
            "--server",
            server.url,
        ]
        assert main(words) == 1
        assert "no valid API key" in capsys.readouterr().err
        assert main([*words, "--key", admin]) == 0
        edit = ["router", "edit", "triage", "--wait", "60", "--server", server.url]
        assert main([*edit, "--key", admin]) == 0  # reads the config first
        assert main([*edit, "--key", decide_key["key"]]) == 1
        assert "'read'" in capsys.readouterr().err
        with Client(server.url, decide_key["key"], retries=0) as client:
            decision = client.router("triage").decide()
            with pytest.raises(errors.AccessDenied, match="reward"):
                client.router("triage").reward(decision.id, 0.5)
    run_keys_verb("revoke", decide_key["id"])
    rows = json.loads(run_keys_verb("list", "--json"))["keys"]
    assert [row["revoked"] is None for row in rows] == [True, False]
    assert main(["keys", "revoke", "unknown", "--store", store]) == 1
    assert "no key 'unknown'" in capsys.readouterr().err


def test_listening_beyond_loopback_needs_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{tmp_path}/bylot.db"
    assert main(["serve", "--host", "0.0.0.0", "--store", store]) == 1
    assert "bylot keys create" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_invalid_addresses_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "a", "--store", "mysql://here"]) == 1
    assert "unsupported store URL scheme" in capsys.readouterr().err
    assert main(["decide", "a", "--server", "here"]) == 1
    assert "invalid server address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "extra", "words"),
    [
        ("httpx", "client", ["decide", "a"]),
        ("httpx", "client", ["router", "list"]),
        ("uvicorn", "serve", ["serve"]),
        ("polars", "reproduce", ["reproduce"]),
        ("polars", "reproduce", ["plot"]),
        ("polars", "reproduce", ["report"]),
    ],
)
def test_a_missing_package_is_named_with_the_install_command(
    missing: str, extra: str, words: list[str], tmp_path: Path
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from bylot.cli import main; sys.exit(main({words!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert re.search(rf"needs {missing}[:;] pip install '\.\[{extra}\]'", result.stderr)
    assert not list(tmp_path.iterdir())


def test_the_edits_of_the_documents_work_on_their_routers(run_verb: RunVerb) -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    lines = re.findall(r"^bylot (router edit triage .*)$", text, re.MULTILINE)
    assert len(lines) == 3
    found = re.search(r"--json '(\{\s*\"name\": \"triage\".*?)'", text, re.DOTALL)
    assert found
    body = {**json.loads(found[1]), "policy": "omd"}
    address = f"{os.environ['BYLOT_SERVER']}/v1/routers"
    assert httpx.post(address, json=body, timeout=600).status_code == 201
    printed = [run_verb(*line.split()) for line in lines]
    assert printed == [f"triage: version {n}\n" for n in (2, 3, 4)]
    run_verb("router", "delete", "triage", "--yes")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readme_leads_to_a_router_with_a_key_over_http(tmp_path: Path) -> None:
    blocks = find_blocks((ROOT / "README.md").read_text(), "sh")
    assert len(blocks) == 2
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    activate, install, *lines = re.sub(" +# .*", "", "".join(blocks)).splitlines()
    assert activate == "source .venv/bin/activate"
    assert install.startswith("pip install '.[serve]'")
    script = "\n".join(lines).replace("localhost:8000", f"localhost:{port}")
    script = script.replace("triage.1.1.9f3ab01c", "$id")
    script = script.replace("curl ", "curl -sS --fail-with-body ")
    script = re.sub("(bylot decide .*)", r"id=$(\1 | head -1 | cut -d ' ' -f 1)", script)
    stop = "trap 'kill $server; wait $server' EXIT"
    script = script.replace("bylot serve &", f"bylot serve & server=$!; {stop}")
    program = tmp_path / "bin" / "bylot"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bylot "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": SOURCES,
        "BYLOT_PORT": str(port),
        "BYLOT_SERVER": f"http://127.0.0.1:{port}",
    }
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "all can be kept together" in done.stdout
    assert "\nlearned\n" in done.stdout
    assert re.search(r"triage, [a-z ]+, policy distinct", done.stdout)
    assert "1 decisions, 1 rewards" in done.stdout
    assert '"context":"headache"' in done.stdout
    assert "API keys are required" in done.stderr
