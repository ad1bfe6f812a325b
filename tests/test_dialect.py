"""A problem is the same in Python, in a file and over HTTP: the same fields, checks and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot import Problem, Router, at_least, at_most, problem_files, share
from bylot.api import CreateRouterQuery
from bylot.environments import Noisy
from bylot.errors import PolicyError, ProblemError
from bylot.harness import play_cell
from bylot.problem_files.document import Document, parse_document
from bylot.router.config import problem_to_data
from bylot.server import config_requests
from live_server import ServerClient, assert_error

YAML_TYPE = {"content-type": "application/yaml"}
JSON_TYPE = {"content-type": "application/json"}

PYTHON = Problem(
    experts=["ann", "bob", "cat"],
    costs={"usd": [4.0, 3.0, 1.0]},
    limits=[at_most("usd", 6.0), at_least(share("junior", ["cat"]), 0.5)],
    draws=2,
    min_draws=1,
    period=800,
)
BY_EXPERT = """\
draws: 2
min_draws: 1
period: 800
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 4.0}
  - {name: bob, usd: 3.0}
  - {name: cat, usd: 1.0, group: junior}
limits:
  - {cost: usd, at_most: 3.0, per: draw}
  - {group: junior, at_least: 0.5}
rewards: {from: 0, to: 10}
"""
BY_ROW = """\
draws: 2
min_draws: 1
period: 800
floor: null
experts: [ann, bob, cat]
costs: {usd: [4, 3, true]}
limits:
  - {cost: usd, at_most: 6.0, per: request}
  - {share: junior, members: [cat], at_least: 0.5}
rewards: [0, 10]
"""


def write_problem(folder: Path, text: str, suffix: str = ".yaml") -> Path:
    path = folder / f"pool{suffix}"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [BY_EXPERT, BY_ROW], ids=["by expert", "by row"])
def test_a_file_gives_the_problem_of_python(tmp_path: Path, text: str) -> None:
    as_json = json.dumps(yaml.safe_load(text))
    for path in (write_problem(tmp_path, text), write_problem(tmp_path, as_json, ".json")):
        file = problem_files.read(path)
        assert file.problem == PYTHON
        assert file.rewards == (0.0, 10.0)


def test_groups_shares_and_units_have_the_same_words_everywhere(tmp_path: Path) -> None:
    in_python = Problem(
        experts=["ann", "bob", "cat"],
        costs={"usd": [4.0, 3.0, 1.0]},
        groups={"junior": ["cat"]},
        limits=[at_most("usd", 3.0, per="draw"), at_least(share("junior"), 0.5, per="request")],
        draws=2,
        min_draws=1,
        period=800,
    )
    assert in_python == PYTHON
    limits = "limits:\n  - {cost: usd, at_most: 3.0, per: draw}\n"
    limits += "  - {share: junior, at_least: 0.5, per: request}\n"
    text = f"{BY_ROW[: BY_ROW.index('limits')]}groups: {{junior: [cat]}}\n{limits}"
    assert problem_files.read(write_problem(tmp_path, text)).problem == PYTHON
    older = text.replace("share: junior", "group: junior")
    assert problem_files.read(write_problem(tmp_path, older)).problem == PYTHON


def test_a_limit_per_draw_or_on_a_group_is_sent_as_it_is_written() -> None:
    limit = at_least(share("junior"), 0.25, per="draw")
    assert limit.to_data() == {"share": "junior", "at_least": 0.25, "per": "draw"}
    assert str(limit) == "at_least('junior', 0.25, per='draw')"
    with pytest.raises(ProblemError, match="share 'junior' has no members; there are no groups"):
        PYTHON.replace(limits=[limit])
    with pytest.raises(ProblemError, match="invalid groups 'junior': expected a mapping of names"):
        Problem(["ann", "bob"], draws=1, groups="junior")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [BY_EXPERT, BY_ROW], ids=["by expert", "by row"])
def test_a_problem_file_can_be_posted_as_it_is(server: ServerClient, text: str) -> None:
    data = yaml.safe_load(text)
    for n, sent in enumerate(
        [
            {"content": text, "headers": YAML_TYPE, "params": {"name": "{}", "policy": "omd"}},
            {"json": data, "params": {"name": "{}", "policy": "omd"}},
            {"json": {"name": "{}", "policy": "omd", "problem": data}},
        ]
    ):
        name = f"posted-{n}-{data['experts'][0] == 'ann'}".lower()
        for place in (sent.get("params"), sent.get("json")):
            if place and "name" in place:
                place["name"] = name
        made = server.post("/v1/routers", **sent)
        assert made.status_code == 201, made.text
        config = made.json()["config"]
        assert config["problem"] == problem_to_data(PYTHON)
        assert (config["rewards"], config["policy"]["name"]) == ([0.0, 10.0], "omd")


def test_an_example_can_be_posted_as_the_readme_does(server: ServerClient) -> None:
    path = Path(__file__).parents[1] / "examples" / "crowd" / "problem.yaml"
    made = server.post("/v1/routers?name=crowd", content=path.read_bytes(), headers=YAML_TYPE)
    assert made.status_code == 201, made.text
    assert made.json()["config"]["problem"] == problem_to_data(problem_files.read(path).problem)


def test_what_the_server_shows_of_a_problem_can_be_posted(server: ServerClient) -> None:
    shown = server.get(server.create_router()).json()["config"]["problem"]
    again = server.post("/v1/routers", json={"name": "again", "problem": shown})
    assert again.json()["config"]["problem"] == shown


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "field": ({"perod": 5}, "problem", "did you mean 'period'?"),
    "limit": ({"limits": [{"cost": "usd", "at_mots": 1}]}, "limits[0].at_mots", "mean 'at_most'?"),
    "cost": ({"limits": [{"cost": "uds", "at_most": 5}]}, "limits[0].cost", "did you mean 'usd'?"),
    "group": ({"limits": [{"group": "jnior", "at_most": 1}]}, "limits[0].group", "mean 'junior'?"),
    "member": (
        {"limits": [{"share": "x", "members": ["ca"], "at_most": 1}]},
        "limits[0].members[0]",
        "did you mean 'cat'?",
    ),
    "expert": (
        {"experts": [{"name": "ann", "usd": 1}, {"name": "bob", "usdd": 1}]},
        "experts[1].usdd",
        "'usd'?",
    ),
    "members": ({"limits": [{"share": "x", "at_most": 1}]}, "limits[0].share", "add members"),
    "short row": ({"experts": ["ann", "bob"], "costs": {"usd": [1]}}, "costs.usd", "each of the 2"),
    "twice": ({"costs": {"usd": [4, 3, 1]}}, "experts[0].usd", "in a list under costs; keep one"),
    "rewards": ({"rewards": [1, 0]}, "rewards", "write the lower end first"),
    "three ends": ({"rewards": [0, 1, 2]}, "rewards", "a lower and a higher end"),
    "fewest": ({"min_draws": 3}, "min_draws", "expected an integer from 1 to 2, the draws"),
    "no number": ({"min_draws": "one"}, "min_draws", "expected a whole number from 1 to 10,000"),
    "draws": ({"draws": 0}, "draws", "expected a whole number from 1 to 10,000"),
    "decimal comma": ({"floor": "0,1"}, "floor", "write 0.1: decimals have a point"),
    "name": ({"experts": ["ann ", "bob"]}, "experts[0]", "without spaces at the ends"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_has_the_same_error_in_a_file_and_over_http(
    server: ServerClient, tmp_path: Path, what: str
) -> None:
    change, field, remedy = MISTAKES[what]
    data = {**yaml.safe_load(BY_EXPERT), **change}
    with pytest.raises(ProblemError) as refusal:
        problem_files.read(write_problem(tmp_path, json.dumps(data, indent=1), ".json"))
    message = str(refusal.value)
    assert remedy in message
    posted = server.post("/v1/routers?name=wrong", json=data)
    error = assert_error(posted, 422)
    assert message.endswith(f": {error['message']}")
    assert error["field"] == ("perod" if what == "field" else field)
    inside = server.post("/v1/routers", json={"name": "wrong", "problem": data})
    assert assert_error(inside, 422)["field"] == f"problem.{error['field']}"
    as_yaml = server.post("/v1/routers?name=wrong", content=yaml.safe_dump(data), headers=YAML_TYPE)
    assert assert_error(as_yaml, 422)["message"].endswith(error["message"])


def test_an_unknown_field_has_a_suggestion_in_python_too() -> None:
    unknown: dict[str, Any] = {"perod": 5}
    with pytest.raises(ProblemError, match=r"unknown field 'perod'.*did you mean 'period'"):
        Problem(["ann", "bob"], draws=1, **unknown)
    unknown = {"exprts": ["ann", "bob"], "draws": 1}
    with pytest.raises(ProblemError, match=r"unknown field 'exprts'.*did you mean 'experts'"):
        Problem(**unknown)
    unknown = {"draw": 1}
    with pytest.raises(ProblemError, match=r"unknown field 'draw'.*did you mean 'draws'"):
        Problem(["ann", "bob"], **unknown)
    with pytest.raises(ProblemError, match=r"missing field 'draws' of a problem; add draws=2"):
        Problem(["ann", "bob"])


def test_an_unknown_field_of_a_request_has_a_suggestion(server: ServerClient) -> None:
    body = {"name": "wrong", "problem": problem_to_data(PYTHON), "polcy": "omd"}
    error = assert_error(server.post("/v1/routers", json=body), 422)
    assert error["message"] == "unknown field 'polcy'; did you mean 'policy'?"
    error = assert_error(server.post("/v1/routers", json=yaml.safe_load(BY_ROW)), 422)
    assert error["message"].startswith("unknown field 'draws'")


def test_a_request_cannot_name_a_file_on_the_server(server: ServerClient) -> None:
    text = BY_EXPERT[: BY_EXPERT.index("experts")] + "experts: {csv: /etc/passwd}\n"
    posted = server.post("/v1/routers?name=wrong", content=text, headers=YAML_TYPE)
    error = assert_error(posted, 422)
    assert error["field"] == "experts.csv"
    assert "line 5: a request cannot name a CSV file; list the experts" in error["message"]
    assert "`bylot router create`" in error["message"]


def test_a_problem_file_without_the_name_of_a_router_is_refused(server: ServerClient) -> None:
    for path in ("/v1/routers", "/v1/routers?policy=omd"):
        error = assert_error(server.post(path, content=BY_ROW, headers=YAML_TYPE), 422)
        assert error["field"] == "name"
        assert "/v1/routers?name=NAME" in error["message"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"draws: [", "not valid YAML"),
        (b"draws: 2\nexperts: [a\xff, b]", "line 2: control character"),
        (b"", "empty file"),
        (b"a: [" + b"1," * 20_001 + b"1]", "more than 20,000 entries; send JSON"),
        (b"? " * 100_000, "invalid key (a mapping)"),
        (b"x: &a [1, 2]\ny: *a", "anchor &a is not supported"),
    ],
)
def test_yaml_that_is_not_a_problem_is_refused(
    server: ServerClient, text: bytes, message: str
) -> None:
    content = text or b" "
    answer = server.post("/v1/routers?name=wrong", content=content, headers=YAML_TYPE)
    assert message in assert_error(answer, 422)["message"]


def test_a_yaml_file_that_is_sent_as_json_is_refused_with_the_type_to_send(
    server: ServerClient,
) -> None:
    headers = {"content-type": "application/json"}
    for content, hinted in ((BY_ROW, True), ("{draws: 2}", False)):
        answer = server.post("/v1/routers?name=wrong", content=content, headers=headers)
        error = assert_error(answer, 400)
        assert error["message"].endswith("; send a YAML file as application/yaml") is hinted


def test_limits_on_large_groups_are_refused_before_they_repeat_their_members() -> None:
    experts = [{"name": f"{n:04}{'e' * 190}", "group": "all"} for n in range(4_000)]
    limits = [{"group": "all", "at_most": 2}, {"group": "all", "at_least": 0.1}]
    with pytest.raises(ProblemError, match="characters of members in all limits: expected at most"):
        config_requests.read_problem_body({"draws": 2, "experts": experts, "limits": limits})


def test_an_edit_speaks_the_same_dialect(server: ServerClient) -> None:
    body = {"name": "edited", "problem": yaml.safe_load(BY_EXPERT)}
    assert server.post("/v1/routers", json=body).status_code == 201
    edit = {
        "limits": [
            {"cost": "usd", "at_most": 3.2, "at_least": 0.1, "per": "draw"},
            {"share": "junior", "at_least": 0.4},
        ],
        "add": [{"name": "dan", "usd": 2, "group": "junior"}],
        "min_draws": None,
    }
    edited = server.patch("/v1/routers/edited", json=edit).json()["config"]["problem"]
    assert edited["experts"] == ["ann", "bob", "cat", "dan"]
    assert "min_draws" not in edited
    smaller = server.patch("/v1/routers/edited", json={"min_draws": 2}).json()["config"]["problem"]
    assert smaller == {**edited, "min_draws": 2}
    assert edited["costs"] == {"usd": [4.0, 3.0, 1.0, 2.0]}
    assert edited["limits"] == [
        {"cost": "usd", "at_most": 6.4},
        {"cost": "usd", "at_least": 0.2},
        {"share": "junior", "members": ["cat", "dan"], "at_least": 0.4},
    ]
    for wrong, field in (
        ({"limits": [{"group": "jnior", "at_least": 0.4}]}, "limits[0].group"),
        ({"add": [{"name": "eve", "uds": 2}]}, "add[0].uds"),
        ({"add": [{"name": "eve", "usd": 2, "group": "jnior"}]}, "add[0].group"),
    ):
        error = assert_error(server.patch("/v1/routers/edited", json=wrong), 422)
        assert error["field"] == field
        assert "did you mean" in error["message"]


def test_more_draws_than_experts_are_refused_if_panels_have_different_members(
    server: ServerClient,
) -> None:
    problem = Problem(["ann", "bob", "cat"], draws=4)
    expected = "invalid draws 4: expected at most 3, as many as there are experts; draw fewer"
    with pytest.raises(PolicyError, match=expected):
        Router(problem)
    body = {"name": "wrong", "problem": problem_to_data(problem)}
    assert expected in assert_error(server.post("/v1/routers", json=body), 422)["message"]
    assert len(Router(problem, "omd").decide().draws) == 4  # with replacement
    refused = play_cell(problem, Noisy([[0.1, 0.5, 0.9]]), "distinct", rounds=3)  # bylot simulate
    assert isinstance(refused, PolicyError)
    assert expected in str(refused)


def test_a_period_that_is_too_short_is_refused_at_creation_with_the_shortest(
    server: ServerClient,
) -> None:
    limits = [at_most("usd", 4.5), at_least(share("senior", ["ann"]), 0.3)]
    problem = PYTHON.replace(limits=limits)
    short = problem.replace(period=2)
    with pytest.raises(
        PolicyError, match=r"a period of 2 rounds is too short.*at least"
    ) as refusal:
        Router(short)
    body = {"name": "wrong", "problem": problem_to_data(short)}
    error = assert_error(server.post("/v1/routers", json=body), 422)
    assert error["message"] == str(refusal.value)
    least = int(error["message"].partition("at least ")[2].partition(" ")[0].replace(",", ""))
    Router(problem.replace(period=least))
    with pytest.raises(PolicyError, match="too short"):
        Router(problem.replace(period=least - 1))


words = st.sampled_from(["ann", "bob", "usd", "junior", "draws", "no", "1e3", "a b", "é", ""])
scalars = words | st.integers(-1, 5) | st.floats(0, 4) | st.booleans() | st.none()
parts = st.recursive(
    scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(words, one, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(["draws", "experts", "costs", "limits", "groups", "contexts", "rewards"])


@settings(deadline=None, derandomize=True, max_examples=120)
@given(
    base=st.sampled_from([BY_EXPERT, BY_ROW]), changes=st.dictionaries(fields, parts, max_size=2)
)
def test_a_document_gives_the_same_problem_or_error_as_a_file_and_as_a_request(
    base: str, changes: dict[str, Any]
) -> None:
    text = yaml.safe_dump({**yaml.safe_load(base), **changes}, allow_unicode=True)

    def read_file() -> problem_files.ProblemFile:
        document = parse_document(Document(Path("pool.yaml")), text, ".yaml")
        return problem_files.problem_file.read_problem(document)

    def read_request() -> problem_files.ProblemFile:
        query = CreateRouterQuery(name="triage")
        body = config_requests.request_from_file(text.encode(), b"application/yaml", query)
        assert body is not None
        return config_requests.read_problem_body(body.problem)

    results: list[tuple[Any, ...]] = []
    for read in (read_file, read_request):
        try:
            file = read()
            results.append((file.problem, file.rewards, file.contexts))
        except ProblemError as error:
            error.path = None  # type: ignore[attr-defined]
            results.append((type(error), str(error)))
    assert results[0] == results[1]
