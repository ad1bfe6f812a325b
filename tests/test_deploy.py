"""Containerfile, compose file, systemd unit and their page name only what exists."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from bylot.cli import make_parser
from bylot.eventlog.events import LOG_VERSION
from bylot.router.snapshot import SNAPSHOT_VERSION
from bylot.server.routes import ROUTES
from bylot.server.settings import CONFIG_VARIABLE, SETTINGS, ServerSettings, load_settings
from bylot.store.schema import STORE_VERSION
from bylot_paper.records import RUN_FORMAT_VERSION
from documents import find_blocks

ROOT = Path(__file__).parent.parent
VARIABLES = {CONFIG_VARIABLE, *(one.variable for one in SETTINGS.values())}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
STORE_FILE = "/var/lib/bylot/bylot.db"
STOP_S = 2 * ServerSettings().drain_timeout_s


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_steps() -> list[tuple[str, str]]:
    """The instructions of the Containerfile."""
    lines = re.sub(r"^#.*\n", "", read("Containerfile"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (one.partition(" ") for one in lines.split("\n"))]


def read_unit() -> dict[str, list[str]]:
    """The settings of the unit's service; one can occur several times."""
    found: dict[str, list[str]] = {}
    for line in (
        read("deploy/bylot.service").split("[Service]")[1].split("[Install]")[0].splitlines()
    ):
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def read_compose() -> dict[str, Any]:
    return dict(yaml.safe_load(read("compose.yaml"))["services"])


def container_variables() -> dict[str, str]:
    """The environment of the image."""
    words = [word for step, rest in read_steps() if step == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def find_bylot_commands(text: str) -> list[list[str]]:
    """The commands of the shell blocks and comments of a file, without what precedes `bylot`."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"(?:bin/bylot|--rm.* bylot|^ExecStart\w*=\S*bylot) (.+)", joined, re.M)
    return [shlex.split(line.split("#")[0]) for line in lines]


@pytest.mark.parametrize(
    "name",
    ["Containerfile", "compose.yaml", "deploy/bylot.service", "docs/deploy.md", "README.md"],
)
def test_every_variable_and_command_exists(name: str) -> None:
    text = read(name)
    known = {*VARIABLES, "BYLOT_NAME", "BYLOT_SERVER", "BYLOT_KEY"}
    assert set(re.findall(r"BYLOT_[A-Z_]+\b", text)) - known == set()
    commands = find_bylot_commands(text)
    assert commands or name == "README.md"  # tests/test_server_cli.py runs those of the README
    for words in commands:
        make_parser().parse_args(words)
    for path in re.findall(r"(?<=\s)deploy/[\w.]+", text):
        assert (ROOT / path).is_file()
    for extra in re.findall(r"\.\[(\w+)\]'", text):
        assert extra in EXTRAS


def test_the_image_listens_and_stores_where_its_port_and_volume_are() -> None:
    steps, variables = read_steps(), container_variables()
    given = {name: value for name, value in variables.items() if name.startswith("BYLOT_")}
    settings = load_settings({}, None, given).settings
    assert settings.host == "0.0.0.0"
    assert ("EXPOSE", str(settings.port)) in steps
    assert settings.store == f"sqlite:///{STORE_FILE}"
    assert ("VOLUME", str(Path(STORE_FILE).parent)) in steps
    assert [rest for step, rest in steps if step == "USER"] == ["10001"]
    assert any(step == "RUN" and "--uid 10001" in rest for step, rest in steps)
    (entry,) = [json.loads(rest) for step, rest in steps if step == "ENTRYPOINT"]
    (words,) = [json.loads(rest) for step, rest in steps if step == "CMD"]
    assert entry == ["bylot"]
    make_parser().parse_args(words)


def test_the_image_uses_the_code_that_its_build_compiled() -> None:
    folders = [
        shlex.split(rest)[-1] if "NUMBA" in rest else ""
        for step, rest in read_steps()
        if step == "ENV"
    ]
    assert "NUMBA_CACHE_DIR=/opt/bylot/compiled" in folders
    assert container_variables()["NUMBA_CACHE_DIR"] == "/opt/bylot/compiled"
    assert ("COPY", "--from=build /opt/bylot /opt/bylot") in read_steps()


def test_the_health_check_asks_a_route_that_needs_no_key() -> None:
    (check,) = [rest for step, rest in read_steps() if step == "HEALTHCHECK"]
    _, python, code = json.loads(check[check.index("[") :])[0:3]
    compile(code, python, "exec")
    (path,) = re.findall(r"'(/\w+)'", code)
    assert path == "/readyz"
    (route,) = [one for one in ROUTES if one.path == path]
    assert route.scope is None


def test_the_build_reads_only_files_that_are_not_ignored() -> None:
    allowed = {line[1:] for line in read(".containerignore").splitlines() if line[:1] == "!"}
    project = tomllib.loads(read("pyproject.toml"))
    needed = {"src", "pyproject.toml", "constraints.txt", project["project"]["readme"]}
    assert allowed == needed | set(project["project"]["license-files"])
    assert read(".dockerignore") == read(".containerignore")


def test_the_compose_file_connects_the_server_to_its_database() -> None:
    services = read_compose()
    server, database = services["bylot"], services["postgres"]
    given = {k: v for k, v in server["environment"].items() if k.startswith("BYLOT_")}
    store = load_settings({}, None, given).settings.store
    user, host, name = re.fullmatch(r"postgresql://(\w+)@(\w+)/(\w+)", store).groups()  # type: ignore[union-attr]
    assert host in services
    assert (user, name) == tuple(
        database["environment"][f"POSTGRES_{one}"] for one in ("USER", "DB")
    )
    assert server["environment"]["PGPASSWORD"] == database["environment"]["POSTGRES_PASSWORD"]
    assert (ROOT / server["build"]["dockerfile"]).is_file()
    port = container_variables().get("BYLOT_PORT", ServerSettings().port)
    assert server["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert float(server["stop_grace_period"].removesuffix("s")) > STOP_S


def test_the_unit_agrees_with_the_settings_and_lets_code_be_compiled() -> None:
    unit = read_unit()
    variables = dict(one.split("=", 1) for one in unit["Environment"])
    assert variables["BYLOT_STORE"] == f"sqlite:///{STORE_FILE}"
    assert unit["WorkingDirectory"] == [f"/var/lib/{unit['StateDirectory'][0]}"]
    assert variables["NUMBA_CACHE_DIR"] == f"/var/cache/{unit['CacheDirectory'][0]}"
    assert float(unit["TimeoutStopSec"][0]) > STOP_S
    assert unit["Type"] == ["notify"]  # test_settings.py shows that the server notifies
    assert unit["MemoryDenyWriteExecute"] == ["no"]
    for name in ("ProtectSystem", "NoNewPrivileges", "RestrictAddressFamilies", "PrivateTmp"):
        assert unit[name] != ["no"]


def test_the_page_on_upgrades_has_the_versions_of_this_bylot() -> None:
    page = read("docs/upgrade.md")
    versions = dict(re.findall(r"^\| ([^|]+?) \| (\d+) \|", page, re.MULTILINE))
    assert list(map(int, versions.values())) == [
        STORE_VERSION,
        SNAPSHOT_VERSION,
        SNAPSHOT_VERSION,
        LOG_VERSION,
        RUN_FORMAT_VERSION,
    ]
    assert f"this bylot supports version {STORE_VERSION}`" in page
    assert f"this bylot reads version {SNAPSHOT_VERSION}`" in page


def test_the_pages_on_running_have_no_block_that_is_not_checked() -> None:
    for page in ("docs/deploy.md", "docs/upgrade.md", "docs/sizing.md"):
        kinds = re.findall(r"^```(\w+)$", read(page), re.MULTILINE)
        assert set(kinds) <= {"sh", "toml", "yaml", "console"}
    assert len(find_blocks(read("docs/deploy.md"), "sh")) == 4


def test_every_package_that_bylot_runs_with_is_bounded_on_both_sides() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = ("plot", "reproduce", "ray", "client", "serve", "otel", "postgres")
    listed = [*project["dependencies"], *(one for name in extras for one in EXTRAS[name])]
    pinned = dict(line.lower().split("==") for line in read("constraints.txt").splitlines())
    for one in map(Requirement, listed):
        if one.name == "bylot":
            continue
        signs = {bound.operator for bound in one.specifier}
        assert signs == {">=", "<"} or one.name in ("uvloop", "httptools"), one
        assert pinned[one.name.replace("prometheus-client", "prometheus_client")] in one.specifier
