"""The settings of a server: flags, environment variables and a configuration file."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from bylot import Client
from bylot.cli import main, make_parser
from bylot.errors import AccessDenied, BylotError, ProblemFileError
from bylot.server.app import notify_systemd
from bylot.server.auth import Credentials, issue_key
from bylot.server.provision import build_declared, build_keys
from bylot.server.settings import (
    SETTINGS,
    TABLES,
    KeyEntry,
    RouterEntry,
    ServerSettings,
    load_settings,
)
from bylot.store import open_store
from bylot_bench.http_load import ServerProcess
from documents import find_blocks
from server_process import SOURCES
from test_server_cli import POOL

DOCS = Path(__file__).parent.parent / "docs"
SECRET, ROW = issue_key("front", ("decide",), (), 0)


def write_config(folder: Path, text: str) -> Path:
    (folder / "pool.yaml").write_text(POOL)
    (folder / "bylot.toml").write_text(text)
    return folder / "bylot.toml"


def test_a_flag_precedes_a_variable_which_precedes_the_file(tmp_path: Path) -> None:
    text = "log_level = 'error'\n[listen]\nport = 1\nhost = 'a'\n[limits]\nrate = 5\n"
    path = write_config(tmp_path, text)
    environ = {"BYLOT_PORT": "2", "BYLOT_HOST": "b", "BYLOT_BURST": "", "BYLOT_CONFIG": str(path)}
    loaded = load_settings({"port": 3}, None, environ)
    assert loaded.settings == ServerSettings(log_level="error", port=3, host="b", rate=5.0)
    origins = {"log_level": str(path), "port": "--port", "host": "BYLOT_HOST", "rate": str(path)}
    assert loaded.origins == origins
    other = write_config(tmp_path, "[listen]\nport = 9\n").rename(tmp_path / "other.toml")
    assert load_settings({}, other, {"BYLOT_CONFIG": "missing"}).settings.port == 9


def test_every_setting_is_a_flag_and_a_variable_and_an_entry_of_the_file(tmp_path: Path) -> None:
    values = {
        name: one.choices[-1] if one.choices else "7" if one.kind is not str else "x"
        for name, one in SETTINGS.items()
    } | {"keep": "7d"}
    environ = {one.variable: values[name] for name, one in SETTINGS.items()}
    by_variable = load_settings({}, None, environ).settings
    words = [word for name, one in SETTINGS.items() for word in (one.flag, values[name])]
    given = make_parser().parse_args(["serve", *words])
    assert {name: getattr(given, name) for name in SETTINGS} == {
        name: getattr(by_variable, name) for name in SETTINGS
    }
    sections: dict[str, dict[str, Any]] = {}
    for name, one in SETTINGS.items():
        sections.setdefault(one.section, {})[name] = getattr(by_variable, name)
    text = "".join(
        (f"[{section}]\n" if section else "")
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
        for section, fields in sections.items()
    )
    assert load_settings({}, write_config(tmp_path, text), {}).settings == by_variable
    assert all(getattr(by_variable, name) != one.default for name, one in SETTINGS.items())
    assert {*SETTINGS, *TABLES, "model_list"} == set(ServerSettings.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stor = 'x'", "unknown field 'stor'; did you mean 'store'?"),
        ("port = 1", "unknown field 'port'; move it to [listen]"),
        ("[limits]\nstore = 'x'", "'store' in [limits]; move it above the first table"),
        ("[limits]\nrat = 1", "unknown field 'rat' in [limits]; did you mean 'rate'?"),
        ("[router.a]\nproblem = 'x'", "unknown field 'router'; did you mean 'routers'?"),
        (
            "[routers.a]\nproblem = 'p.yaml'\nmax_contexts = 0",
            "routers.a.max_contexts: expected a whole number >= 1",
        ),
        ("[keys.a]\nscope = ['decide']", "'scope' in [keys.a]; did you mean 'scopes'?"),
        ("[keys.a]\nscopes = ['decid']", "keys.a.scopes[0]: Invalid enum value 'decid'"),
        ("[routers.a]\nwait = 3", "routers.a has neither problem nor models"),
        ("[routers]\na = 'x.yaml'", "routers.a: expected a table [routers.a]"),
        ("listen = 80", "listen: expected a table [listen]"),
        ("[listen]\nport = 70000", "invalid listen.port 70000: expected a whole number <= 65535"),
        ("[listen]\nport = '80'", "invalid listen.port '80': expected a whole number"),
        ("[limits]\nrate = 0", "invalid limits.rate 0: expected a number > 0.0"),
        ("log_level = 'loud'", "'loud': expected debug or info or warning or error"),
        ("[listen", "not valid TOML"),
    ],
)
def test_a_fault_of_the_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = write_config(tmp_path, text)
    with pytest.raises(BylotError) as caught:
        load_settings({}, path, {})
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_faults_of_flags_and_variables_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--port", "x"])
    assert "--port: invalid value 'x': expected a whole number" in capsys.readouterr().err
    with pytest.raises(BylotError, match=r"BYLOT_PORT 'tcp://1': .* enableServiceLinks: false"):
        load_settings({}, None, {"BYLOT_PORT": "tcp://1"})
    with pytest.raises(BylotError, match="cannot be read: No such file"):
        load_settings({}, tmp_path / "none.toml", {})
    known = {"BYLOT_SERVER": "x", "BYLOT_KEY": "x", "HOME": "x"}
    assert load_settings({}, None, known).warnings == ()
    (warning,) = load_settings({}, None, {"BYLOT_PROT": "1"}).warnings
    assert warning == "unknown variable BYLOT_PROT; did you mean 'BYLOT_PORT'?"


def test_a_store_of_the_wrong_type_is_refused_without_its_password(tmp_path: Path) -> None:
    path = write_config(tmp_path, 'store = ["postgresql://me:s3cret@db/bylot"]\n')
    with pytest.raises(BylotError, match=r"store.*expected a text") as refusal:
        load_settings({}, path, {})
    assert "s3cret" not in str(refusal.value)


def test_a_declared_key_comes_from_a_file_a_variable_or_its_digest(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    scopes = "scopes = ['decide']\n"
    digest = f"{ROW.id}:{ROW.digest.hex()}"
    for source in ("file = 'key'", "env = 'FRONT'", f"digest = '{digest}'"):
        path = write_config(tmp_path, f"[keys.front]\n{source}\n{scopes}")
        loaded = load_settings({}, path, {"FRONT": SECRET})
        assert build_keys(loaded.settings.keys, {"FRONT": SECRET}) == {ROW.id: ROW}
    credentials = Credentials("127.0.0.1", {ROW.id: ROW})
    credentials.keys = credentials.declared
    caller = credentials.find_caller(SECRET)
    assert caller is not None
    assert caller.scopes == {"decide"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (KeyEntry(), "expected one of file, env and digest"),
        (KeyEntry(env="FRONT", digest="x"), "expected one of file, env and digest"),
        (KeyEntry(env="NONE"), "NONE contains no API key"),
        (KeyEntry(digest=SECRET), "its digest contains no API key"),
        (KeyEntry(env="BAD"), "BAD contains no API key"),
        (KeyEntry(env=SECRET), "file or env is the key itself"),
        (KeyEntry(file=Path("/run") / SECRET), "file or env is the key itself"),
        (KeyEntry(file=Path("/nowhere/key")), "/nowhere/key cannot be read"),
    ],
)
def test_a_fault_of_a_declared_key_is_explained_without_its_secret(
    entry: KeyEntry, message: str
) -> None:
    with pytest.raises(BylotError) as caught:
        build_keys({"front": entry}, {"FRONT": SECRET, "BAD": SECRET[:-1]})
    assert message in str(caught.value)
    assert SECRET[20:30] not in str(caught.value)


def test_two_declarations_of_one_key_are_refused() -> None:
    entry = KeyEntry(env="FRONT")
    with pytest.raises(BylotError, match=r"keys\.b is the same key as keys\.a"):
        build_keys({"a": entry, "b": entry}, {"FRONT": SECRET})


def test_a_declared_router_that_asks_more_experts_than_there_are_is_refused(tmp_path: Path) -> None:
    problem = tmp_path / "pool.yaml"
    problem.write_text("experts: [ann, bob]\ndraws: 3\n")
    declared = build_declared("r", RouterEntry(problem=problem, policy="tangent"), {})
    assert declared.config.problem["draws"] == 3
    for policy in ("distinct", "auto"):
        with pytest.raises(ProblemFileError, match="line 2: invalid draws 3: expected at most 2"):
            build_declared("r", RouterEntry(problem=problem, policy=policy), {})


def test_check_prints_values_and_sources_without_secrets_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    digest = f"{ROW.id}:{ROW.digest.hex()}"
    text = f"[keys.front]\ndigest = '{digest}'\n[routers.triage]\nproblem = 'pool.yaml'\n"
    text += "policy = 'random'\n"
    path = write_config(tmp_path, text)
    assert main(["serve", "--config", "bylot.toml", "--port", "9", "--check"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["port"] == ["9", "--port"]
    assert rows["host"] == ["127.0.0.1", "default"]
    assert rows["routers.triage.problem"] == ["pool.yaml", "bylot.toml"]
    assert rows["keys.front.digest"] == [ROW.id, "bylot.toml"]
    assert rows["triage"] == ["create"]
    names = list(rows)  # what matters first, defaults last
    assert names.index("triage") < names.index("port") < names.index("host")
    assert ROW.digest.hex() not in out
    assert {one.name for one in tmp_path.iterdir()} == {"bylot.toml", "pool.yaml"}
    path.write_text(text.replace("pool.yaml", "none.yaml"))
    assert main(["serve", "--config", "bylot.toml", "--check"]) == 1
    assert "none.yaml" in capsys.readouterr().err
    path.write_text("[routers.Triage]\nproblem = 'pool.yaml'\n")
    assert main(["serve", "--config", "bylot.toml", "--check"]) == 1
    assert "invalid router name 'Triage'" in capsys.readouterr().err


def test_check_refuses_to_listen_on_the_network_without_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--store", f"sqlite:///{tmp_path}/keys.db"]
    check = ["serve", "--check", "--host", "0.0.0.0", *words]
    assert main(check) == 1
    assert "bylot keys create" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["keys", "create", "front", *words]) == 0
    assert main(check) == 0


def test_a_start_and_its_check_refuse_half_of_the_settings_of_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = ["serve", "--store", f"sqlite:///{tmp_path}/bylot.db"]
    advertise = ["--advertise", "http://10.0.0.5:8000"]
    for words in ([*serve, *advertise], [*serve, *advertise, "--check"]):
        assert main(words) == 1
        assert "advertise without a cluster key; set BYLOT_CLUSTER_KEY" in capsys.readouterr().err
    short = [*serve, "--cluster-key", "s3cret", "--check", *advertise]
    assert main(short) == 1
    assert "a cluster key of 6 characters: expected at least 16" in capsys.readouterr().err
    keyed = [*serve, "--cluster-key", "s3cret" * 3, "--check", "--advertise"]
    assert main([*keyed, "10.0.0.5:8000"]) == 1
    assert "expected http://HOST:PORT" in capsys.readouterr().err
    assert main([*keyed, "http://10.0.0.5:8000"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_check_does_not_contact_a_store_unless_routers_are_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BYLOT_STORE", "postgresql://bylot:s3cret@db.invalid/bylot")
    assert main(["serve", "--check"]) == 0
    out = capsys.readouterr().out
    assert "postgresql://bylot@db.invalid/bylot" in out
    assert "s3cret" not in out
    path = write_config(tmp_path, "[routers.triage]\nproblem = 'pool.yaml'\n")
    assert main(["serve", "--check", "--config", str(path)]) == 1  # neither could it start
    printed = "".join(capsys.readouterr())
    assert "bylot@db.invalid/bylot" in printed
    assert "s3cret" not in printed
    for url in ("postgresqll://me:s3cret@db/bylot", "host=db password=s3cret"):
        assert main(["serve", "--store", url, "--check"]) == 1
        assert "s3cret" not in "".join(capsys.readouterr())


def test_a_key_for_a_configuration_is_printed_and_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("keys", "create", "front end", "--scope", "decide", "--router", "triage")
    assert main([*words, "--for-config"]) == 0
    secret, _, *table = capsys.readouterr().out.splitlines()
    assert list(tmp_path.iterdir()) == []
    loaded = load_settings({}, write_config(tmp_path, "\n".join(table)), {})
    (key,) = build_keys(loaded.settings.keys).values()
    assert (key.label, key.scopes, key.routers) == ("front end", ("decide",), ("triage",))
    credentials = Credentials("127.0.0.1", {key.id: key})
    credentials.keys = credentials.declared
    assert credentials.find_caller(secret) is not None


def test_the_list_of_keys_names_those_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BYLOT_STORE", f"sqlite:///{tmp_path}/keys.db")
    open_store(f"sqlite:///{tmp_path}/keys.db").close()
    path = write_config(tmp_path, "[keys.front]\nenv = 'FRONT'\nscopes = ['decide']\n")
    assert main(["keys", "list"]) == 0
    assert "from its own machine only" in capsys.readouterr().out
    assert main(["keys", "list", "--config", str(path)]) == 0
    expected = "no keys in the store\ndeclared in the configuration: front\n"
    assert capsys.readouterr().out == expected
    assert main(["keys", "list", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"keys": [], "declared": ["front"]}


def test_verbs_of_a_store_use_the_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BYLOT_STORE", f"sqlite:///{tmp_path}/mine.db")
    assert main(["keys", "create", "front"]) == 0
    assert (tmp_path / "mine.db").exists()
    assert main(["keys", "list"]) == 0
    assert "front" in capsys.readouterr().out
    assert main(["replay", "triage"]) == 1
    assert "no router named 'triage'" in capsys.readouterr().err


def test_a_server_is_run_by_its_configuration_file(tmp_path: Path) -> None:
    text = "[keys.front]\nfile = 'key'\nscopes = ['decide']\n"
    text += "[routers.triage]\nproblem = 'pool.yaml'\npolicy = 'random'\n"
    path = write_config(tmp_path, f"store = 'sqlite:///{tmp_path}/bylot.db'\n{text}")
    (tmp_path / "key").write_text(SECRET)
    environ = {**os.environ, "PYTHONPATH": SOURCES, "BYLOT_CONFIG": str(path)}
    with ServerProcess("bylot", "serve", environment=environ) as server:
        assert httpx.get(f"{server.url}/v1/routers").status_code == 401
        with Client(server.url, SECRET) as client:
            assert len(client.router("triage").decide().subset) == 2
            with pytest.raises(AccessDenied):
                client.router("triage").delete()


def test_systemd_is_notified_of_the_start_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_systemd("READY=1")  # no service manager
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    notify_systemd("READY=1")  # one that cannot be reached
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0bylot@{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@bylot@{os.getpid()}")
        notify_systemd("READY=1")
        assert receiver.recv(100) == b"READY=1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        environ = {**os.environ, "PYTHONPATH": SOURCES, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        words = ("serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/bylot.db")
        child = subprocess.Popen([sys.executable, "-m", "bylot", *words], env=environ)
        assert receiver.recv(100) == b"READY=1"
        child.terminate()
        assert receiver.recv(100) == b"STOPPING=1"
        assert child.wait(60) == 0


def test_the_page_lists_every_setting_and_its_example_is_valid(tmp_path: Path) -> None:
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    for one in SETTINGS.values():
        place = f"{one.section}.{one.name}".removeprefix(".")
        assert f"| `{place}` | `{one.flag}` | `{one.variable}` |" in page
    (example,) = find_blocks(page, "toml")
    (tmp_path / "frontend.key").write_text(SECRET)
    settings = load_settings({}, write_config(tmp_path, example), {}).settings
    other, _ = issue_key("operator", ("admin",), (), 0)
    keys = build_keys(settings.keys, {"OPERATOR_KEY": other}).values()
    assert {key.label: key.scopes for key in keys} == {
        "frontend": ("decide", "reward"),
        "operator": ("admin",),
    }
    assert list(settings.routers) == ["triage"]
    assert (settings.host, settings.rate) == ("0.0.0.0", 200)


def test_no_output_shows_the_cluster_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BYLOT_CLUSTER_KEY", "hush-hush")
    assert main(["serve", "--check", "--store", f"sqlite:///{tmp_path}/x.db"]) == 0
    out, err = capsys.readouterr()
    assert "cluster_key" in out
    assert "hush" not in out + err + repr(load_settings({}, None).settings)
    with pytest.raises(BylotError) as caught:
        SETTINGS["cluster_key"].parse(7_654_321, "cluster_key", strict=True)
    assert "7654321" not in str(caught.value)
