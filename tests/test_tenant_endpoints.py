"""Limits for each tenant over HTTP: labels of requests, own bounds, ledgers after a restart."""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from bylot import Router
from bylot.api import TenantList, TenantView
from bylot.client import AsyncClient, Client, DecisionRequest
from bylot.client.calls import quote_segment
from bylot.errors import BudgetSpent, ProblemError, TenantError
from bylot.eventlog.commands import GetTenant, ListTenants, MakeDecision, SetTenant
from bylot.eventlog.copies import import_router
from bylot.eventlog.events import now_us
from bylot.problem import Problem, at_most
from bylot.server import peers
from bylot.server.reconcile import describe_limit_changes
from bylot.store import open_store
from live_server import ServerClient, assert_error, live_server

EXPERTS, COSTS = ["small", "large"], {"usd": [1.0, 2.0]}
MONTHLY = {"cost": "usd", "at_most": 7.0, "per": "month", "scope": "tenant"}
OWN = {"cost": "usd", "at_most": 50.0, "per": "month"}


def make_problem(*limits: dict[str, Any]) -> dict[str, Any]:
    return {"experts": EXPERTS, "costs": COSTS, "limits": list(limits), "draws": 2}


@pytest.fixture(scope="module")
def router(server: ServerClient) -> str:
    return server.create_router(problem=make_problem(MONTHLY))


def spend_all(server: ServerClient, router: str, tenant: str) -> httpx.Response:
    """Decide until the budget of a tenant is spent; returns the refusal."""
    for _ in range(100):
        response = server.post(f"{router}/decisions", json={"tenant": tenant})
        if response.status_code != 201:
            return response
    raise AssertionError("its budget was not kept")


def read_tenant(server: ServerClient, router: str, tenant: str) -> dict[str, Any]:
    response = server.get(f"{router}/tenants/{quote(tenant, safe='')}")
    assert response.status_code == 200, response.text
    (window,) = response.json()["windows"]
    return dict(window)


def test_one_tenant_is_refused_while_another_goes_on(server: ServerClient, router: str) -> None:
    assert server.decide(router, tenant="ann", context="er")["keys"] == {"tenant": "ann"}
    refused = spend_all(server, router, "ann")
    error = assert_error(refused, 429)
    assert error["code"] == "budget_spent"
    assert "for tenant 'ann'" in error["message"]
    assert error["message"].endswith(" UTC"), "callers cannot raise the bound"
    assert 1 <= int(refused.headers["retry-after"]) <= 31 * 86_400
    assert server.decide(router, tenant="bob")["spend"]["usd"] == 3.0
    items = [{"tenant": "ann"}, {"tenant": "bob"}, {}]
    batch = server.post(f"{router}/decisions:batch", json={"decisions": items}).json()["results"]
    assert [one["status"] for one in batch] == [429, 201, 422]
    assert [one.get("error", {}).get("code") for one in batch] == [
        *("budget_spent", None, "bad_tenant")
    ]
    ann, bob = read_tenant(server, router, "ann"), read_tenant(server, router, "bob")
    assert (ann["spent"], ann["left"], ann["requests"], ann["own"]) == (6.0, 1.0, 2, False)
    assert (bob["spent"], bob["limit"]) == (6.0, "usd per month for each tenant")
    assert ann["starts"] < ann["ends"]
    assert error["resets_at"] == batch[0]["error"]["resets_at"] == ann["ends"]
    assert "`tenant` in the body" in batch[2]["error"]["message"]
    assert "resets_at" not in batch[2]["error"]
    unknown = read_tenant(server, router, "zoe")
    assert (unknown["spent"], unknown["bound"]) == (0.0, 7.0)
    limit = server.get(f"{router}/status").json()["limits"][0]
    assert limit["tenants"]["active"] == 2
    assert limit["tenants"]["spent"] == 2


def test_a_tenant_can_have_bounds_of_its_own(server: ServerClient, router: str) -> None:
    spend_all(server, router, "carl")
    path = f"{router}/tenants/carl"
    response = server.put(path, json={"limits": [OWN]})
    assert response.status_code == 200, response.text
    view = response.json()
    assert (view["router"], view["tenant"]) == (router.rpartition("/")[2], "carl")
    assert (view["windows"][0]["bound"], view["windows"][0]["own"]) == (50.0, True)
    assert server.decide(router, tenant="carl")
    assert read_tenant(server, router, "dora")["bound"] == 7.0, "others keep theirs"
    events = server.get(f"{router}/events?limit=1000").json()["events"]
    changed = [one["body"] for one in events if one["kind"] == "key"]
    assert changed[-1]["limits"] == [{**OWN, "scope": "tenant"}]
    again = server.put(path, json={"limits": []})
    assert (again.json()["windows"][0]["bound"], again.json()["windows"][0]["own"]) == (7.0, False)
    assert_error(server.post(f"{router}/decisions", json={"tenant": "carl"}), 429)


@pytest.mark.parametrize(
    "tenant", ["acme/europe", "a b", "Zürich", "100%", "tenants/x", "?#&", "."]
)
def test_a_tenant_may_have_any_printable_name(
    server: ServerClient, router: str, tenant: str
) -> None:
    with Client(str(server.base_url)) as client:
        remote = client.router(router.rpartition("/")[2])
        made = remote.decide(tenant=tenant)
        view = remote.tenant(tenant)
    assert (made.keys["tenant"], view.tenant, view.windows[0].spent) == (tenant, tenant, 3.0)
    path = f"{router}/tenants/{quote_segment(tenant)}"
    assert server.get(path).json()["windows"][0]["requests"] == 1


def test_names_that_look_alike_are_one_tenant(server: ServerClient, router: str) -> None:
    assert server.decide(router, tenant="cafe\u0301")["keys"] == {"tenant": "caf\u00e9"}
    batch = {"decisions": [{"tenant": "cafe\u0301"}, {"tenant": "caf\u00e9"}]}
    server.post(f"{router}/decisions:batch", json=batch)
    assert read_tenant(server, router, "cafe\u0301")["requests"] == 2, "the third was refused"


def test_a_tenant_is_needed_if_and_only_if_limits_are_for_each(
    server: ServerClient, router: str
) -> None:
    error = assert_error(server.post(f"{router}/decisions", json={}), 422)
    assert error["code"] == "bad_tenant"
    assert "names none; give `tenant`" in error["message"]
    plain = server.create_router()
    error = assert_error(server.post(f"{plain}/decisions", json={"tenant": "ann"}), 422)
    assert error["code"] == "bad_tenant"
    assert error["message"] == "this router has no limits for each tenant; leave out tenant 'ann'"
    assert assert_error(server.get(f"{plain}/tenants/ann"), 422)["code"] == "bad_tenant"
    put = server.put(f"{plain}/tenants/ann", json={"limits": [OWN]})
    assert assert_error(put, 422)["code"] == "bad_tenant"
    for wrong in ("", "a\nb", "x" * 201, 3):
        response = server.post(f"{router}/decisions", json={"tenant": wrong})
        assert assert_error(response, 422)["field"] == "tenant"


@pytest.mark.parametrize(
    ("limit", "part"),
    [
        ({**OWN, "per": "day"}, "there is one of usd per month for each tenant"),
        ({**OWN, "cost": "eur"}, "no budget of eur per month for each tenant"),
        ({**OWN, "at_most": -1}, "limits[0].at_most"),
        ({"cost": "usd", "at_most": 50}, "hour or day or week or month"),
        ({**OWN, "zone": "Europe/Berlin"}, "only the bound can be another one"),
        ({"share": "s", "members": ["small"], "at_most": 1, "per": "week"}, "budgets only"),
        ({**OWN, "scope": "team"}, "expected tenant"),
        ({**OWN, "bound": 3}, "unknown key 'bound'"),
    ],
)
def test_own_bounds_are_checked(
    server: ServerClient, router: str, limit: dict[str, Any], part: str
) -> None:
    response = server.put(f"{router}/tenants/eve", json={"limits": [limit]})
    assert part in assert_error(response, 422)["message"]
    assert read_tenant(server, router, "eve")["own"] is False


def test_paths_of_tenants_are_checked(server: ServerClient, router: str) -> None:
    assert_error(server.get("/v1/routers/nobody/tenants/ann"), 404)
    assert_error(server.get(f"{router}/tenants/"), 404)
    assert_error(server.post(f"{router}/tenants", json={}), 405)
    assert_error(server.get("/v1/routers/nobody/tenants"), 404)
    assert assert_error(server.get(f"{router}/tenants?limit=0"), 422)["field"] == "limit"
    assert_error(server.delete(f"{router}/tenants/ann"), 405)
    assert assert_error(server.get(f"{router}/tenants/a%0Ab"), 422)["field"] == "tenant"
    assert assert_error(server.put(f"{router}/tenants/ann", json={}), 422)["code"] == "invalid"


def test_a_restart_keeps_ledgers_and_own_bounds(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        router = server.create_router(problem=make_problem(MONTHLY))
        spend_all(server, router, "ann")
        server.put(f"{router}/tenants/bob", json={"limits": [{**OWN, "at_most": 4.0}]})
        late = server.decide(router, tenant="bob")["id"]
        before = [read_tenant(server, router, name) for name in ("ann", "bob")]
    with live_server(tmp_path) as server:
        assert [read_tenant(server, router, name) for name in ("ann", "bob")] == before
        assert_error(server.post(f"{router}/decisions", json={"tenant": "ann"}), 429)
        refused = server.post(f"{router}/decisions", json={"tenant": "bob"})
        assert "at_most('usd', 4.0," in assert_error(refused, 429)["message"], "its own bound"
        assert server.decide(router, tenant="carl")
        reward = {"value": 0.5, "spend": {"usd": 0.25}}
        assert server.post(f"/v1/decisions/{late}/reward", json=reward).status_code == 200
        assert read_tenant(server, router, "bob")["spent"] == 0.25, "in the ledger of its tenant"
        assert read_tenant(server, router, "ann") == before[0]


def test_limits_for_tenants_and_contexts_can_be_edited(server: ServerClient) -> None:
    icu = {"cost": "usd", "at_most": 3.0, "where": {"context": ["icu"]}}
    router = server.create_router(problem=make_problem(MONTHLY, icu))
    config = server.get(router).json()["config"]
    assert config["problem"]["limits"] == [MONTHLY, icu]
    assert config["policy"]["name"] == "noisy-or"
    server.decide(router, tenant="ann", context="icu")
    edited = server.patch(router, json={"limits": [{**MONTHLY, "at_most": 9.0}, icu]})
    assert edited.status_code == 200, edited.text
    assert read_tenant(server, router, "ann")["bound"] == 9.0
    assert read_tenant(server, router, "ann")["spent"] == 3.0
    wrong = server.patch(router, json={"limits": [{**icu, "where": {"tenant": ["ann"]}}]})
    assert "unknown key 'tenant' in limits[0].where" in assert_error(wrong, 422)["message"]
    dropped = server.patch(router, json={"limits": [icu]})
    assert dropped.status_code == 200, dropped.text
    assert assert_error(server.get(f"{router}/tenants/ann"), 422)["code"] == "bad_tenant"


def test_clients_decide_for_tenants(server: ServerClient) -> None:
    router = server.create_router(problem=make_problem(MONTHLY))
    name, own = router.rpartition("/")[2], at_most("usd", 4, per="month", scope="tenant")
    with Client(str(server.base_url), retries=0) as client:
        remote = client.router(name)
        assert remote.set_tenant("ann", [own]).windows[0].bound == 4.0
        assert remote.decide(tenant="ann").keys == {"tenant": "ann"}
        with pytest.raises(BudgetSpent, match=r"for tenant 'ann'.* UTC$") as caught:
            remote.decide(tenant="ann")
        (window,) = remote.tenant("ann")
        (item,) = remote.decide_many([DecisionRequest(tenant="ann")])
        for spent in (caught.value, item):
            assert isinstance(spent, BudgetSpent)
            assert (spent.resets_at, spent.field) == (window.ends, "tenant")
            assert spent.reset_s is not None
            assert abs(window.ends / 1e6 - time.time() - spent.reset_s) < 60
        with pytest.raises(ProblemError, match=r"put it in a list: \[at_most"):
            remote.set_tenant("ann", own)  # type: ignore[arg-type]
        with pytest.raises(TenantError, match="names none"):
            remote.decide()
        with pytest.raises(TenantError, match="there is one of usd per month for each tenant"):
            remote.set_tenant("ann", [at_most("usd", 4, per="day", scope="tenant")])
        with pytest.raises(ProblemError):
            remote.set_tenant("ann", [at_most("usd", 4)])
        assert remote.set_tenant("ann").windows[0].own is False

    async def ask() -> tuple[str | None, float]:
        async with AsyncClient(str(server.base_url)) as client:
            remote = client.router(name)
            await remote.set_tenant("poor", [own.at(0.0)])
            with pytest.raises(BudgetSpent) as caught:
                await remote.decide(tenant="poor")
            assert caught.value.resets_at == (await remote.tenant("poor")).windows[0].ends
            made = await remote.decide(tenant="bob")
            await remote.set_tenant("bob", [own])
            return made.keys["tenant"], (await remote.tenant("bob")).windows[0].bound

    assert asyncio.run(ask()) == ("bob", 4.0)


def test_tenants_are_listed_page_by_page(server: ServerClient) -> None:
    router = server.create_router(problem=make_problem(MONTHLY))
    assert server.get(f"{router}/tenants").json() == {"tenants": [], "next": None}
    for name in ("bob", "acme/eu", "Zürich"):
        server.decide(router, tenant=name)
    server.put(f"{router}/tenants/idle", json={"limits": [OWN]})
    first = server.get(f"{router}/tenants?limit=2").json()
    assert [one["tenant"] for one in first["tenants"]] == ["Zürich", "acme/eu"]
    assert first["next"] == "acme/eu"
    rest = server.get(f"{router}/tenants", params={"after": first["next"]}).json()
    assert [one["tenant"] for one in rest["tenants"]] == ["bob", "idle"]
    assert rest["next"] is None
    assert [one["windows"][0]["own"] for one in rest["tenants"]] == [False, True]
    assert rest["tenants"][0] == server.get(f"{router}/tenants/bob").json()
    with Client(str(server.base_url)) as client:
        views = list(client.router(router.rpartition("/")[2]).tenants())
    assert [one.tenant for one in views] == ["Zürich", "acme/eu", "bob", "idle"]

    async def list_all() -> list[TenantView]:
        async with AsyncClient(str(server.base_url)) as client:
            return [one async for one in client.router(router.rpartition("/")[2]).tenants()]

    assert asyncio.run(list_all()) == views
    plain = server.create_router()
    assert assert_error(server.get(f"{plain}/tenants"), 422)["code"] == "bad_tenant"


def test_the_api_of_personalizer_has_no_tenants(server: ServerClient, router: str) -> None:
    body = {"actions": [{"id": name} for name in EXPERTS]}
    path = f"/personalizer/v1.1/rank?router={router.rpartition('/')[2]}"
    error = assert_error(server.post(path, json=body), 422)
    assert error["code"] == "bad_tenant"
    assert "this API has no tenants" in error["message"]


def test_the_openapi_document_has_both_parameters(server: ServerClient) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    put = paths["/v1/routers/{name}/tenants/{tenant}"]["put"]
    assert [one["name"] for one in put["parameters"]] == ["name", "tenant"]
    assert put["security"][0] == {"key": ["admin"]}


def test_commands_about_tenants_travel_between_servers() -> None:
    own = at_most("usd", 4, per="month", scope="tenant", where={"context": ["Zürich"]})
    for command in (
        SetTenant("triage", "acme/eu", (own,), by="k"),
        GetTenant("triage", "acme"),
        ListTenants("triage", "acme", 7),
        MakeDecision("triage", "icu", keys={"tenant": "acme"}),
    ):
        assert peers.decode_command(peers.encode_command(command)) == command
    end = now_us() + 3_000_000
    refusal = BudgetSpent("spent", limit=own, resets_at=end, reset_s=3.0, field="tenant")
    found = peers.decode_result(command, peers.encode_result(refusal))
    assert (found.code, found.field, found.resets_at) == ("budget_spent", "tenant", end)
    assert found.body.error.resets_at == end
    view = TenantView("triage", "acme", ())
    page = TenantList((view,), "acme")
    assert peers.decode_result(ListTenants("triage"), peers.encode_result(page)) == page
    sent = peers.encode_result(view)
    assert peers.decode_result(GetTenant("triage", "acme"), sent) == view


def test_changes_of_limits_say_which_requests_they_count() -> None:
    icu = {"cost": "usd", "at_most": 3.0, "where": {"context": ["icu"]}}
    changed = {**MONTHLY, "at_most": 9.0}
    plain = {"cost": "usd", "at_most": 7.0, "per": "month"}
    assert list(describe_limit_changes([MONTHLY, plain], [changed, plain, icu])) == [
        "usd at most per month for each tenant 7 -> 9",
        "add usd at most 3 in icu",
    ]


def test_a_saved_router_with_tenants_can_be_imported(tmp_path: Path) -> None:
    limit = at_most("usd", 7, per="month", scope="tenant")
    router = Router(Problem(EXPERTS, COSTS, [limit], draws=2))
    router.decide(tenant="ann")
    router.save(tmp_path / "saved.json")
    url = f"sqlite:///{tmp_path}/bylot.db"
    with closing(open_store(url)) as store:
        import_router(tmp_path / "saved.json", store, "copied")
    with live_server(tmp_path) as server:
        assert read_tenant(server, "/v1/routers/copied", "ann")["spent"] == 3.0
