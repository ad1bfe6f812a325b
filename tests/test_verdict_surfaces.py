"""Every surface shows the same verdict on a limit: API, list, page, command line, metrics, logs."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

import bylot
from bylot.cli import main
from bylot.limits.status import QUIET_VERDICTS
from bylot.limits.verdict import BROKEN_VERDICTS, VERDICTS
from bylot.router.state import VERDICT_LEVELS
from bylot.server.dashboard import source
from live_server import FIVE_EXPERTS, ServerClient, live_server

PROBLEM = {**FIVE_EXPERTS, "period": 100}
EXPENSIVE = ["ann", "bob"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClient]:
    """A server of its own, whose list is not cached and has few routers."""
    with pytest.MonkeyPatch.context() as patch, live_server(tmp_path_factory.mktemp("v")) as client:
        patch.setattr(source, "LIST_REFRESH_S", 0.0)
        yield client


def play(
    server: ServerClient, router: str, rounds: int, available: list[str] | None = None
) -> None:
    batch = [{"available": available} if available else {}] * rounds
    response = server.post(f"{router}/decisions:batch", json={"decisions": batch})
    assert response.status_code == 200, response.text
    ids = [one["decision"]["id"] for one in response.json()["results"]]
    rewards = [{"decision": id, "value": 0.5} for id in ids]
    response = server.post("/v1/rewards:batch", json={"rewards": rewards})
    assert response.status_code == 200, response.text


def edit(server: ServerClient, router: str, **changes: object) -> None:
    assert server.patch(router, json=changes).status_code == 200


def make_not_started(server: ServerClient) -> str:
    return server.create_router(problem=PROBLEM)


def make_on_track(server: ServerClient) -> str:
    router = server.create_router(problem=PROBLEM)
    play(server, router, 100)
    play(server, router, 30)
    return router


def make_begun(server: ServerClient) -> str:
    router = server.create_router(problem=PROBLEM)
    play(server, router, 100)
    return router


def make_missed(server: ServerClient) -> str:
    router = server.create_router(problem=PROBLEM)
    play(server, router, 20, EXPENSIVE)
    return router


def make_recovering(server: ServerClient) -> str:
    router = make_missed(server)
    play(server, router, 12)
    return router


def make_edited(server: ServerClient) -> str:
    router = make_on_track(server)
    limits = [{"cost": "usd", "at_most": 2.5}, *FIVE_EXPERTS["limits"][1:]]
    edit(server, router, limits=limits)
    return router


def make_edited_while_over(server: ServerClient) -> str:
    router = make_recovering(server)
    limits = [{"cost": "usd", "at_most": 2.8}, *FIVE_EXPERTS["limits"][1:]]
    edit(server, router, limits=limits)
    play(server, router, 3)
    return router


def make_paused(server: ServerClient) -> str:
    router = make_on_track(server)
    edit(server, router, pause=["ann"])
    play(server, router, 10)
    return router


def make_finished(server: ServerClient) -> str:
    router = server.create_router(problem=PROBLEM, horizon=60)
    play(server, router, 60, EXPENSIVE)
    return router


def make_without_periods(server: ServerClient) -> str:
    router = server.create_router(problem=PROBLEM, policy="random", seed=1)
    play(server, router, 200)
    return router


SITUATIONS: dict[str, tuple[Callable[[ServerClient], str], list[str]]] = {
    "not started": (make_not_started, ["not started"] * 3),
    "on track": (make_on_track, ["on track"] * 3),
    "a period that just began": (make_begun, ["on track"] * 3),
    "an outage": (make_missed, ["will be missed", "will be missed", "on track"]),
    "after an outage": (make_recovering, ["recovering", "on track", "on track"]),
    "an edited bound": (make_edited, ["on track"] * 3),
    "an edited bound while over": (make_edited_while_over, ["recovering", "on track", "on track"]),
    "a paused expert": (make_paused, ["on track"] * 3),
    "the end of the horizon": (make_finished, ["missed", "missed", "kept"]),
    "without periods": (make_without_periods, ["outside", "inside", "inside"]),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_all_surfaces_show_the_same_verdict(
    situation: str,
    server: ServerClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, expected = SITUATIONS[situation]
    router = make(server)
    name, url = router.rpartition("/")[2], str(server.base_url)
    monkeypatch.setenv("BYLOT_SERVER", url)
    status = server.get(f"{router}/status").json()
    limits = status["limits"]
    verdicts = [(one["verdict"], one["sentence"]) for one in limits]
    assert [verdict for verdict, _ in verdicts] == expected
    assert [one["kept"] for one in limits] == [one not in BROKEN_VERDICTS for one in expected]
    assert status["kept"] == all(one["kept"] for one in limits)
    assert server.get(router).json()["status"]["limits"] == limits
    with bylot.Client(url) as client:
        typed = client.router(name).status().limits
    assert [(one.verdict, one.sentence) for one in typed] == verdicts
    check_list(server, name, verdicts)
    check_page(server, name, verdicts)
    check_metrics(server, name, status)
    check_command_line(name, verdicts, capsys)
    if status["period"] is None:
        check_evaluation(name, expected, capsys)


def check_list(server: ServerClient, name: str, verdicts: list[tuple[str, str]]) -> None:
    """The list has the worst verdict, and its sentence, of a router that has only limits."""
    row = next(one for one in server.get("/routers.json").json()["routers"] if one["name"] == name)
    worst = min((verdict for verdict, _ in verdicts), key=lambda word: VERDICTS.index(word))
    sentences = [sentence for verdict, sentence in verdicts if verdict == worst]
    assert row["state"]["name"] == worst
    assert row["state"]["sentence"].partition(": ")[2] in sentences
    counts = Counter(verdict for verdict, _ in verdicts)
    assert row["verdicts"] == ", ".join(f"{counts[one]} {one}" for one in VERDICTS if counts[one])
    page = server.get("/").text
    (shown,) = re.findall(rf'<tr[^>]*data-name="{name}".*?</tr>', page, re.S)
    assert find_states(shown) == [worst]
    assert html.escape(row["state"]["sentence"]) in shown


def check_page(server: ServerClient, name: str, verdicts: list[tuple[str, str]]) -> None:
    data = server.get(f"/routers/{name}.json").json()
    limits = [one["status"] for one in data["limits"]]
    assert [(one["verdict"], one["sentence"]) for one in limits] == verdicts
    page = server.get(f"/routers/{name}").text.partition("<template>")
    assert find_states(page[0])[0] == data["status"]["state"]["name"]  # beside the title
    articles = re.findall(r"<article.*?</article>", page[2], re.S)
    cards = [one for one in articles if find_states(one)]  # the others are templates
    assert [find_states(one) for one in cards] == [[verdict] for verdict, _ in verdicts]
    for card, (_, sentence) in zip(cards, verdicts, strict=True):
        assert html.escape(sentence) in card


def find_states(text: str) -> list[str]:
    """The words of the states in a part of a page."""
    found = re.findall(r'<span[^>]*class="state"[^>]*>([^<]*)</span>', text)
    return [html.unescape(word) for word in found if word.strip(" –")]


def check_metrics(server: ServerClient, name: str, status: dict[str, object]) -> None:
    """One verdict is 1, and it is that of the status."""
    current, kept = dict[tuple[str | None, str | None], str](), {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for one in family.samples:
            key = one.labels.get("cost"), one.labels.get("side")
            if one.labels.get("router") == name and one.name == "bylot_limit_verdict":
                assert one.labels["verdict"] in VERDICTS
                if one.value:
                    assert current.setdefault(key, one.labels["verdict"]) == one.labels["verdict"]
            elif one.labels.get("router") == name and one.name == "bylot_limit_kept":
                kept[key] = bool(one.value)
    if not status["decisions"]:
        assert current == {}  # it was not used yet
        return
    limits = {(one["cost"], one["side"]): one for one in status["limits"]}  # type: ignore[attr-defined]
    assert current == {key: one["verdict"] for key, one in limits.items()}
    assert kept == {key: one["kept"] for key, one in limits.items()}


def check_command_line(
    name: str, verdicts: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["router", "show", name, "--json"]) == 0
    limits = json.loads(capsys.readouterr().out)["status"]["limits"]
    assert [(one["verdict"], one["sentence"]) for one in limits] == verdicts
    assert main(["router", "show", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if re.match(r"\w+ [<>]=", line)]
    if rows:  # none before the first decision
        assert [re.split(r"\s{2,}", row)[-1] for row in rows] == [one for one, _ in verdicts]
    for verdict, sentence in verdicts:
        loud = verdict not in QUIET_VERDICTS or "measured" in sentence
        assert any(line.endswith(f" {verdict}: {sentence}") for line in lines) == loud


def check_evaluation(name: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The averages of a log are judged like those of a policy without periods."""
    assert main(["evaluate", "--router", name, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdicts"]["as logged"] == expected
    assert len(data["limits"]) == len(expected)
    assert main(["evaluate", "--router", name]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"usd +<= 3 +[0-9.]+ {expected[0]}\b", printed)


def test_the_verdicts_that_need_attention_are_broken_limits_and_budgets_that_run_out() -> None:
    assert set(VERDICT_LEVELS) == {*BROKEN_VERDICTS, "spent", "will run out"}
    assert not set(VERDICT_LEVELS) & {*QUIET_VERDICTS, "recovering"}


def make_capped(server: ServerClient, policy: str = "distinct", **limit: object) -> str:
    """A router whose calls are declared to cost at most 2, under a limit that is then certain."""
    problem = {
        "experts": ["ann", "bob"],
        "costs": {"usd": [1.0, 1.0]},
        "max_costs": {"usd": [2.0, 2.0]},
        "limits": [{"cost": "usd", **limit}],
        "draws": 1,
        "period": 10,
    }
    return server.create_router(problem=problem, policy=policy)


def pay(server: ServerClient, router: str, cost: float, **labels: str) -> None:
    """Decide once; the call of ann costs so much, and that of bob what is declared."""
    made = server.decide(router, **labels, available=["ann" if cost > 2.0 else "bob"])
    body = {"value": 0.5, "spend": {"usd": dict.fromkeys(made["subset"], cost)}}
    assert server.post(f"/v1/decisions/{made['id']}/reward", json=body).status_code == 200


def break_this_day(server: ServerClient) -> str:
    router = make_capped(server, at_most=20.0, per="day")
    pay(server, router, 30.0)
    return router


def break_an_earlier_period(server: ServerClient) -> str:
    router = make_capped(server, at_most=2.5)
    pay(server, router, 40.0)
    for _ in range(11):
        pay(server, router, 1.0)
    return router


def break_the_day_of_a_tenant(server: ServerClient) -> str:
    router = make_capped(server, "noisy-or", at_most=20.0, per="day", scope="tenant")
    pay(server, router, 30.0, tenant="acme")
    pay(server, router, 1.0, tenant="other")
    return router


def lack_an_expert(server: ServerClient) -> str:
    problem = {**FIVE_EXPERTS, "period": 10, "limits": [{"cost": "junior", "at_least": 0.9}]}
    router = server.create_router(problem=problem)
    play(server, router, 10, EXPENSIVE)
    play(server, router, 2)
    return router


DEAR = "calls of ann cost more than max_costs declares"
BROKEN_PROMISES: dict[str, tuple[Callable[[ServerClient], str], str]] = {
    "this day": (break_this_day, f"broken: this day is outside; {DEAR}"),
    "a period": (break_an_earlier_period, f"broken: 1 earlier period ended outside; {DEAR}"),
    "a tenant": (break_the_day_of_a_tenant, f"broken: this day is outside; {DEAR}"),
    "an outage": (lack_an_expert, "broken: 1 earlier period ended outside; calls cost more than"),
}


@pytest.mark.parametrize("situation", BROKEN_PROMISES)
def test_no_surface_shows_a_promise_that_was_broken_as_certain(
    situation: str, server: ServerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    make, sentence = BROKEN_PROMISES[situation]
    router = make(server)
    name, url = router.rpartition("/")[2], str(server.base_url)
    (limit,) = server.get(f"{router}/status").json()["limits"]
    assert limit["current"]["promise"] == "broken"
    assert limit["promise"].startswith(sentence)
    with bylot.Client(url) as client:
        assert client.router(name).status().limits[0].promise == limit["promise"]
    (shown,) = server.get(f"/routers/{name}.json").json()["limits"]
    assert shown["status"]["current"] == limit["current"]
    assert shown["status"]["promise"] == limit["promise"]
    page = server.get(f"/routers/{name}").text.partition("<template>")[2]
    (card,) = [one for one in re.findall(r"<article.*?</article>", page, re.S) if find_states(one)]
    assert html.escape(limit["promise"]) in card
    assert main(["router", "show", name, "--server", url]) == 0
    for text in (card, capsys.readouterr().out):
        assert not re.search(r"\bcertain\b", text)


def test_a_promise_that_was_kept_stays_certain(server: ServerClient) -> None:
    router = make_capped(server, at_most=2.5)
    for _ in range(12):
        pay(server, router, 2.0)
    (limit,) = server.get(f"{router}/status").json()["limits"]
    assert (limit["current"]["missed"], limit["current"]["promise"]) == (0, "certain")
    assert limit["promise"].startswith("certain: it holds at the end of every period")
