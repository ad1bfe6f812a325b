"""Routers of the configuration file: created, edited or refused when a server starts."""

import logging
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bylot.api import EditRouterRequest
from bylot.cli import main
from bylot.errors import BylotError, RouterBusy
from bylot.eventlog.audit import audit_router
from bylot.eventlog.commands import EditRouter, GetRouter, MakeDecision, RecordReward
from bylot.eventlog.events import now_us
from bylot.eventlog.loading import read_stored_config
from bylot.router.config import RouterConfig
from bylot.server import reconcile
from bylot.server.config_requests import prepare_edit
from bylot.server.reconcile import (
    declare_routers,
    describe_limit_changes,
    plan_routers,
    reconcile_routers,
)
from bylot.server.settings import RouterEntry, ServerSettings, load_settings
from bylot.server.writer import make_command_handler
from bylot.store import open_store

EXAMPLES = Path(__file__).parent.parent / "examples"
POOL = """\
draws: 2
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 3.0, group: senior}
  - {name: bob, usd: 2.0}
  - {name: cat, usd: 1.0, group: junior}
  - {name: eve, usd: 0.5, group: junior}
limits:
  - {cost: usd, at_most: 4.0}
  - {group: junior, at_least: 0.3}
"""
ROUTER = "routers:\n  triage:\n    problem: pool.yaml\n    policy: random\n"
Start = Callable[..., list[str]]


class Deployment:
    """A configuration file beside a store; `start` does what a starting server does."""

    def __init__(self, folder: Path, address: str, caplog: pytest.LogCaptureFixture) -> None:
        self.folder, self.address, self.caplog = folder, address, caplog
        self.pool, self.text = POOL, ROUTER

    def settings(self) -> ServerSettings:
        (self.folder / "pool.yaml").write_text(self.pool)
        (self.folder / "bylot.yaml").write_text(self.text)
        loaded = load_settings({"store": self.address}, self.folder / "bylot.yaml", {})
        return structs.replace(loaded.settings, lease_s=1.0)

    def plan(self) -> list[str]:
        """What `--check` says about the routers."""
        settings = self.settings()
        return [str(one) for one in plan_routers(settings, declare_routers(settings))]

    def start(self) -> list[str]:
        """The messages of a start about routers."""
        self.caplog.clear()
        settings = self.settings()
        with closing(open_store(self.address)) as store:
            reconcile_routers(store, settings, declare_routers(settings))
        return [one.getMessage() for one in self.caplog.records if one.name == "bylot.server"]

    def refuse(self) -> str:
        """The error of a start."""
        with pytest.raises(BylotError) as caught:
            self.start()
        return str(caught.value)

    def config(self, name: str = "triage") -> RouterConfig:
        with closing(open_store(self.address)) as store:
            row = store.find(name)
            assert row is not None
            config = read_stored_config(store, row)
        assert config is not None
        return config

    def perform(self, *commands: Any) -> list[Any]:
        with closing(make_command_handler(self.address, 10.0)) as handler:
            return handler.perform(commands, now_us())

    def edit(self, **fields: Any) -> None:
        """Edit the router by hand, as a request does."""
        prepared = prepare_edit(self.config(), EditRouterRequest(**fields))
        (view,) = self.perform(EditRouter("triage", prepared.config))
        assert not isinstance(view, Exception), view


@pytest.fixture
def deployment(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> Iterator[Deployment]:
    caplog.set_level(logging.INFO, "bylot.server")
    logger = logging.getLogger("bylot")  # an earlier test may have started a server
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [], True
    yield Deployment(tmp_path, address, caplog)
    logger.handlers, logger.propagate = before


def test_a_declared_router_is_created_once(deployment: Deployment) -> None:
    assert deployment.plan() == ["create"]
    assert deployment.start() == [
        f"router triage: create, from {deployment.folder}/pool.yaml",
    ]
    config = deployment.config()
    assert deployment.plan() == ["unchanged"]
    assert deployment.start() == []
    assert deployment.config() == config
    assert config.version == 1


def test_what_can_be_edited_is_edited_as_a_new_version_that_keeps_what_was_learned(
    deployment: Deployment,
) -> None:
    deployment.text += "    feedback: members\n"
    deployment.text = deployment.text.replace("random", "omd")
    deployment.start()
    for _ in range(20):
        (decision,) = deployment.perform(MakeDecision("triage"))
        deployment.perform(RecordReward(decision.id, None, members={decision.subset[0]: 1.0}))
    (before,) = deployment.perform(GetRouter("triage"))
    deployment.pool = (
        POOL.replace("at_most: 4.0", "at_most: 3.5")
        .replace("  - {name: bob, usd: 2.0}\n", "")
        .replace("limits:", "  - {name: zoe, usd: 0.25, group: junior}\nlimits:")
    )
    deployment.text += "    wait: 60\n    default: 0\n    aggregate: last\n    paused: [eve]\n"
    deployment.text += "    max_contexts: 2000\n"
    expected = (
        "edit: add expert zoe; remove expert bob; limits: usd at most 4 -> 3.5, members of junior "
        "at least +zoe; pause eve; wait: none -> 60; default: none -> 0; aggregate: earliest -> "
        "last; max_contexts: 1000 -> 2000"
    )
    assert deployment.plan() == [expected]
    assert deployment.config().version == 1  # a plan writes nothing
    (line,) = deployment.start()
    assert line == f"router triage: {expected}, from {deployment.folder}/pool.yaml"
    config = deployment.config()
    assert config.version == 2
    assert config.problem["experts"] == ["ann", "cat", "eve", "zoe"]
    assert config.problem["costs"] == {"usd": [3.0, 1.0, 0.5, 0.25]}
    assert (config.wait, config.default, config.aggregate) == (60.0, 0.0, "last")
    assert (config.paused, config.max_contexts) == (("eve",), 2000)
    (after,) = deployment.perform(GetRouter("triage"))
    assert after.status.decisions == before.status.decisions == 20
    assert after.number == before.number
    assert deployment.plan() == ["unchanged"]
    assert deployment.start() == []
    assert deployment.config() == config
    with closing(open_store(deployment.address, read_only=True)) as store:
        assert audit_router(store, "triage").fault is None


def test_min_draws_and_limits_can_be_added_and_dropped(deployment: Deployment) -> None:
    deployment.start()
    deployment.pool = POOL.replace("draws: 2", "draws: 2\nmin_draws: 1").replace(
        "  - {group: junior, at_least: 0.3}\n", "  - {cost: usd, at_least: 0.25}\n"
    )
    plan = "edit: limits: drop junior at least 0.3, add usd at least 0.25; min_draws: none -> 1"
    assert deployment.plan() == [plan]
    deployment.start()
    assert deployment.config().problem["min_draws"] == 1
    deployment.pool = POOL
    deployment.start()
    assert "min_draws" not in deployment.config().problem
    assert deployment.plan() == ["unchanged"]


def test_limits_of_the_calendar_are_created_and_edited(deployment: Deployment) -> None:
    day = "  - {cost: usd, at_most: 500, per: day, zone: Europe/Berlin}\n"
    deployment.text = ROUTER.replace("random", "noisy-or")
    deployment.pool = f"traffic: 2000\n{POOL}{day}"
    deployment.start()
    stored = deployment.config().problem
    assert stored["traffic"] == 2_000
    window = {"per": "day", "zone": "Europe/Berlin"}
    assert stored["limits"][2] == {"cost": "usd", "at_most": 500.0, **window}
    other = day.replace("500", "600").replace("Europe/Berlin", "UTC, when_spent: refuse")
    deployment.pool = f"traffic: 3000\n{POOL}{other}  - {{cost: usd, at_most: 9000, per: month}}\n"
    assert deployment.plan() == [
        "edit: limits: usd at most per day 500 -> 600, usd at most per day, zone: Europe/Berlin -> "
        "UTC, usd at most per day, when_spent: cheapest -> refuse, add usd "
        "at most 9,000 per month, UTC, cheapest (stays: traffic 2,000)"
    ]
    deployment.start()
    edited = deployment.config().problem
    assert edited["traffic"] == 2_000, "a running router has learned its own"
    assert edited["limits"][2] == {
        "cost": "usd",
        "at_most": 600.0,
        "per": "day",
        "when_spent": "refuse",
    }
    assert deployment.plan() == ["unchanged (stays: traffic 2,000)"]
    deployment.pool = f"traffic: 2000\n{POOL}"
    (plan,) = deployment.plan()
    assert plan == (
        "edit: limits: drop usd at most 600 per day, UTC, refuse, "
        "drop usd at most 9,000 per month, UTC, cheapest"
    )


def test_the_file_wins_over_an_edit_by_hand_but_leaves_pauses(deployment: Deployment) -> None:
    deployment.start()
    deployment.edit(limits=({"cost": "usd", "at_most": 3.0},), pause=("ann",))
    assert deployment.plan() == ["edit: limits: usd at most 3 -> 4, add junior at least 0.3"]
    deployment.start()
    assert len(deployment.config().problem["limits"]) == 2
    assert deployment.config().paused == ("ann",)
    deployment.text += "    paused: []\n"
    assert deployment.plan() == ["edit: resume ann"]


@pytest.mark.parametrize(
    ("pool", "router", "difference"),
    [
        (("draws: 2", "draws: 3"), "", "draws: 2 -> 3"),
        (("bob, usd: 2.0", "bob, usd: 2.5"), "", "costs.usd of 'bob': 2 -> 2.5"),
        (("draws: 2", "draws: 2\nperiod: 900"), "", "period: none -> 900"),
        (("draws: 2", "draws: 2\nfloor: 0.01"), "", "floor: 0.025 -> 0.01"),
        (("usd", "eur"), "", "costs.usd: declared -> none; costs.eur: none -> declared"),
        (("", ""), "seed: 3", "seed: 0 -> 3"),
        (("", ""), "horizon: 9000", "horizon: none -> 9000"),
        (("", ""), "rewards: [0, 2]", "rewards: 0 to 1 -> 0 to 2"),
        (("", ""), "feedback: members", "feedback: panel -> members"),
        (("", ""), "memory: 50", "memory: 100000 -> 50"),
        (("", ""), "max_contexts: 10", "max_contexts: 1000 -> 10"),
        (("", ""), "policy: omd", "policy: random -> omd"),
    ],
)
def test_what_cannot_be_edited_is_refused_and_nothing_is_changed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    pool: tuple[str, str],
    router: str,
    difference: str,
) -> None:
    one = Deployment(tmp_path, f"sqlite:///{tmp_path}/bylot.db", caplog)
    one.start()
    one.pool = POOL.replace(*pool) if pool[0] else POOL
    one.text = ROUTER.replace("    policy: random\n", "") if "policy" in router else ROUTER
    one.text += f"    {router}\n    wait: 60\n  other:\n    problem: pool.yaml\n"
    one.text += "    policy: random\n"
    assert one.plan() == [f"refused: {difference}", "create"]
    error = one.refuse()
    assert f"cannot be changed while it runs: {difference}; declare a router under" in error
    assert one.config().version == 1
    with closing(open_store(one.address)) as store:
        assert store.find("other") is None


def test_what_is_only_used_at_the_creation_and_not_given_stays_as_it_was(
    deployment: Deployment,
) -> None:
    deployment.text += "    seed: 3\n    memory: 50\n    max_contexts: 20\n    horizon: 9000\n"
    deployment.text = deployment.text.replace("random", "omd:eta=0.5")
    deployment.pool = f"period: 900\nfloor: 0.01\n{POOL}"
    deployment.start()
    config = deployment.config()
    deployment.text, deployment.pool = ROUTER.replace("random", "omd"), POOL
    (plan,) = deployment.plan()
    assert plan.startswith("unchanged (stays: floor 0.01; period 900; seed 3; horizon 9000; memory")
    deployment.text = ROUTER.replace("    policy: random\n", "")
    assert "policy omd" in deployment.plan()[0]
    assert deployment.start() == []
    assert deployment.config() == config


@pytest.mark.parametrize(
    ("edited", "change"),
    [
        ({"at_most": 600.0}, "usd at most per day 500 -> 600"),
        ({"zone": "Europe/Berlin"}, "usd at most per day, zone: UTC -> Europe/Berlin"),
        ({"when_spent": "refuse"}, "usd at most per day, when_spent: cheapest -> refuse"),
    ],
)
def test_an_edit_of_a_limit_per_day_is_a_change(edited: dict[str, object], change: str) -> None:
    limit = {"cost": "usd", "at_most": 500.0, "per": "day"}
    assert list(describe_limit_changes([limit], [limit | edited])) == [change]
    weekly = limit | {"per": "week"}
    assert list(describe_limit_changes([limit], [weekly])) == [
        "drop usd at most 500 per day, UTC, cheapest",
        "add usd at most 500 per week, UTC, cheapest",
    ]
    shared = limit | {"scope": "tenant"}
    icu, both = ({**limit, "where": {"context": where}} for where in (["icu"], ["icu", "er"]))
    assert list(describe_limit_changes([limit, icu], [limit, icu | {"at_most": 5.0}])) == [
        "usd at most per day in icu 500 -> 5"
    ]
    assert list(describe_limit_changes([limit, icu], [limit, shared, both])) == [
        "drop usd at most 500 per day in icu, UTC, cheapest",
        "add usd at most 500 per day for each tenant, UTC, cheapest",
        "add usd at most 500 per day in icu, er, UTC, cheapest",
    ]


def test_the_order_of_experts_limits_and_costs_is_no_difference(deployment: Deployment) -> None:
    deployment.start()
    *head, a, b, c, d, limits, one, two = POOL.splitlines()
    deployment.pool = "\n".join([*head, d, b, a, c, limits, two, one])
    assert deployment.plan() == ["unchanged"]


def test_the_floor_of_a_router_stays_when_experts_are_added(deployment: Deployment) -> None:
    deployment.start()
    floor = deployment.config().problem["floor"]
    deployment.pool = POOL.replace("limits:", "  - {name: zoe, usd: 1.0}\nlimits:")
    (plan,) = deployment.plan()
    assert plan == "edit: add expert zoe (stays: floor 0.025)"
    deployment.start()
    assert deployment.config().problem["floor"] == floor


def test_an_edit_that_no_policy_can_keep_is_refused(deployment: Deployment) -> None:
    deployment.text = ROUTER.replace("random", "distinct")
    deployment.start()
    deployment.pool = POOL.replace("at_most: 4.0", "at_most: 1.4")
    assert deployment.plan()[0].startswith("refused: router 'triage': ")
    assert "1.4" in deployment.refuse()
    assert deployment.config().version == 1


def test_a_router_that_the_file_does_not_name_stays(deployment: Deployment) -> None:
    deployment.start()
    deployment.text = ROUTER.replace("triage", "other")
    deployment.start()
    assert deployment.config("triage").version == deployment.config("other").version == 1


def test_two_servers_can_start_at_once(deployment: Deployment) -> None:
    settings, failures = deployment.settings(), list[BaseException]()
    declared = declare_routers(settings)

    def start() -> None:
        try:
            with closing(open_store(deployment.address)) as store:
                together.wait()
                reconcile_routers(store, settings, declared)
        except BaseException as error:
            failures.append(error)

    for version, bound in ((1, "4.0"), (2, "3.5"), (3, "3.0")):
        together = threading.Barrier(3)
        deployment.pool = POOL.replace("4.0", bound)
        settings = deployment.settings()
        declared = declare_routers(settings)
        threads = [threading.Thread(target=start) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert failures == []
        assert deployment.config().version == version
        assert deployment.plan() == ["unchanged"]


def test_a_router_that_another_server_has_open_is_left_as_it_is_with_a_warning(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "EXTRA_WAIT_S", 0.0)
    deployment.start()
    deployment.pool = POOL.replace("4.0", "3.5")
    with closing(make_command_handler(deployment.address, 60.0)) as other:
        other.perform([MakeDecision("triage")], now_us())
        (line,) = deployment.start()
        assert "router triage is not changed (edit: limits: usd at most 4 -> 3.5)" in line
        assert "is leased by another server" in line
    assert deployment.config().version == 1
    deployment.start()
    assert deployment.config().version == 2


def test_the_lease_of_a_server_that_ended_is_waited_for(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.start()
    deployment.pool = POOL.replace("4.0", "3.5")
    results: list[Any] = [RouterBusy("leased"), RouterBusy("leased")]
    perform = reconcile.perform_plan

    def perform_later(*parts: Any) -> Any:
        return results.pop() if results else perform(*parts)

    monkeypatch.setattr(reconcile, "perform_plan", perform_later)
    deployment.start()
    assert deployment.config().version == 2


def test_a_declared_router_whose_log_is_damaged_does_not_stop_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Deployment(tmp_path, f"sqlite:///{tmp_path}/bylot.db", caplog)
    one.start()
    with closing(sqlite3.connect(tmp_path / "bylot.db")) as database, database:
        database.execute("UPDATE events SET body = X'78'")
    assert one.plan() == ["unreadable"]
    one.start()


@pytest.mark.parametrize("example", ["ads", "crowd"])
def test_a_router_that_was_created_from_an_example_does_not_differ_from_it(
    tmp_path: Path, example: str
) -> None:
    entry = RouterEntry(problem=EXAMPLES / example / "problem.yaml", policy="random")
    settings = ServerSettings(store=f"sqlite:///{tmp_path}/bylot.db", routers={"one": entry})
    declared = declare_routers(settings)
    with closing(open_store(settings.store)) as store:
        reconcile_routers(store, settings, declared)
    assert [str(one) for one in plan_routers(settings, declared)] == ["unchanged"]


def test_check_says_what_a_start_would_do_and_writes_nothing(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(code: int) -> str:
        deployment.settings()
        config = str(deployment.folder / "bylot.yaml")
        words = ["serve", "--check", "--config", config, "--store", deployment.address]
        assert main(words) == code
        printed = capsys.readouterr()
        (row,) = re.findall(r"^triage +(.*)$", printed.out, re.MULTILINE)
        assert "The file is the truth for the routers that it names" in printed.out
        return str(row) + printed.err

    assert check(0) == "create"  # of a database that does not exist, or is empty
    deployment.start()
    files = {one: one.read_bytes() for one in deployment.folder.glob("*.db*")}
    assert check(0) == "unchanged"
    deployment.pool = POOL.replace("4.0", "3.5")
    assert check(0) == "edit: limits: usd at most 4 -> 3.5"
    deployment.pool = POOL.replace("draws: 2", "draws: 3")
    assert "refused: draws: 2 -> 3bylot: router 'triage' differs from" in check(1)
    assert {one: one.read_bytes() for one in deployment.folder.glob("*.db")} == {
        one: content for one, content in files.items() if one.suffix == ".db"
    }
    assert deployment.config().version == 1
