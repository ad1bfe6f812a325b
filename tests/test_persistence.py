"""Saving, loading and continuing equals one long run; invalid files are refused."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bylot import Problem, Router, at_least, at_most, policies, share
from bylot.errors import PolicyError, RewardConflict, SavedFileError
from bylot.limits.records import CLOCK, LEARNED, LEDGER
from bylot.policies import POLICIES, Omd, Policy
from bylot.router.persistence import problem_from_data, problem_to_data
from bylot.router.saved_file import compute_checksum, write_saved_file
from sample_problem import make_five_expert_problem, make_recorded_environment
from test_router import play_router, snapshot_router

SAVED_POLICIES: dict[str, Policy] = {
    **POLICIES,
    "frozen sum": Omd(dual=0.7, freeze_dual_in_batch=True, batch_gradient="sum"),
}


@pytest.mark.parametrize("policy", SAVED_POLICIES)
@pytest.mark.parametrize("cut", [0, 1, 137])
def test_save_load_continue_equals_one_long_run(policy: str, cut: int, tmp_path: Path) -> None:
    environment = make_recorded_environment(250, contexts=4)
    long_run = Router(make_five_expert_problem(), SAVED_POLICIES[policy], seed=3)
    play_router(long_run, environment, 0, 250)
    first = Router(make_five_expert_problem(), SAVED_POLICIES[policy], seed=3)
    play_router(first, environment, 0, cut)
    first.save(tmp_path / "router.json")
    second = Router.load(tmp_path / "router.json")
    assert snapshot_router(second) == snapshot_router(first)
    play_router(second, environment, cut, 250)
    assert snapshot_router(second) == snapshot_router(long_run)
    assert str(second.status()) == str(long_run.status())


@pytest.mark.parametrize("policy", SAVED_POLICIES)
def test_open_decisions_and_old_rewards_survive_saving(policy: str, tmp_path: Path) -> None:
    router = Router(make_five_expert_problem(), SAVED_POLICIES[policy], seed=3)
    rewarded, unrewarded = router.decide(), router.decide("other")
    router.reward(rewarded.id, 0.5)
    router.save(tmp_path / "router.json")
    loaded = Router.load(tmp_path / "router.json")
    assert loaded.reward(rewarded.id, 0.5) == "duplicate"
    assert loaded.reward(unrewarded.id, 0.25) == "learned"
    assert router.reward(unrewarded.id, 0.25) == "learned"
    assert snapshot_router(loaded) == snapshot_router(router)


@pytest.mark.parametrize("policy", SAVED_POLICIES.values(), ids=str)
def test_settings_survive_conversion_to_data(policy: Policy) -> None:
    assert (
        policies.policy_from_data(json.loads(json.dumps(policies.policy_to_data(policy)))) == policy
    )


def test_settings_of_the_first_version_can_be_read() -> None:
    first = {
        "name": "omd",
        "eta": None,
        "eta_mult": 0.05,
        "batch": 10,
        "batch_gradient": "mean",
        "baseline": True,
        "freeze_dual_in_batch": False,
        "dual": {"kind": "fixed", "step": 0.05},
    }
    assert policies.policy_from_data(first) == Omd()
    for edit in ({"name": "omg"}, {"new": 1}):
        with pytest.raises(PolicyError, match="upgrade it"):
            policies.policy_from_data(first | edit)
    with pytest.raises(PolicyError, match=r"setting dual .*other.*: expected a positive number"):
        policies.policy_from_data(first | {"dual": {"kind": "other", "step": 1.0}})


def test_a_share_keeps_its_members() -> None:
    problem = Problem(
        ["a", "b", "c"],
        {"usd": [1, 2, 3]},
        [at_most("usd", 4), at_least(share("ab", ["a", "b"]), 0.1)],
        draws=2,
    )
    for one in (problem, problem.replace(min_draws=1)):
        data = json.loads(json.dumps(problem_to_data(one)))
        assert problem_from_data(data) == one
        assert ("min_draws" in data) == (one.min_draws is not None)  # as in files of earlier bylots


def test_a_later_version_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    Router(make_five_expert_problem()).save(path)
    path.write_text(path.read_text().replace('"version":9', '"version":10'))
    with pytest.raises(SavedFileError, match="has version 10; this bylot reads version 9"):
        Router.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "not a bylot-router file"),
        ('{"format": "bylot-router", "version": 9}', "was changed"),
        (
            '{"form": "bylot-router", "version": 1}',
            "has version 1; this bylot reads version 9; use the bylot that wrote it",
        ),
        ("[" * 100_000, "is not JSON"),
        ("\x00\x01", "is not JSON"),
    ],
)
def test_a_file_that_is_not_a_router_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    path.write_text(text)
    with pytest.raises(SavedFileError, match=words):
        Router.load(path)


def test_a_missing_file_or_a_folder_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SavedFileError, match=r"nowhere\.json does not exist; use a file") as caught:
        Router.load(tmp_path / "nowhere.json")
    assert isinstance(caught.value, FileNotFoundError)  # the standard error too
    with pytest.raises(SavedFileError, match="cannot be read: Is a directory; use a file") as other:
        Router.load(tmp_path)
    assert not isinstance(other.value, FileNotFoundError)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    Router(make_five_expert_problem()).save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_saved_file(path, {"bad": float("nan")})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "no folder" / "router.json", tmp_path / "file" / "router.json"):
        with pytest.raises(SavedFileError, match=f"{path} cannot be written"):
            Router(make_five_expert_problem()).save(path)


@pytest.mark.parametrize(
    "edit",
    [
        {"state": {"visits": [-10, 0]}},
        {"state": {"q": [[0.0, 0.25, 0.25, 0.25, 0.25]] * 2}},
        {"state": {"q": [[1e308] * 5] * 2}},
        {"state": {"q": [0.2] * 10}},
        {"state": {"visits": [1.9, 1]}},
        {"open": [{"t": 1, "context": True}]},
        {"problem": {"draws": 2**63}},
        {"policy": {"batch": 2**63}},
        {"policy": {"baseline": {}}},
        {"contexts": [], "state": {"q": [], "mass": [], "u": [], "g": []}},
    ],
    ids=str,
)
def test_an_invalid_file_with_a_valid_checksum_is_refused(
    edit: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "router.json"
    router = Router(make_five_expert_problem(), "omd")
    router.decide("a")
    router.decide("b")
    router.save(path)
    data = json.loads(path.read_text())
    for key, value in edit.items():
        if isinstance(value, dict):
            data[key].update(value)
        elif value and isinstance(value[0], dict):
            data[key][value[0]["t"]].update(value[0])
        else:
            data[key] = value
    if not data["contexts"]:
        for name in ("feasible", "visits", "rewards", "total"):
            data["state"][name] = []
        data["open"] = []
    data["checksum"] = compute_checksum(data)
    path.write_text(json.dumps(data))
    with pytest.raises(SavedFileError, match="is damaged"):
        Router.load(path)


def replace_fields(state: dict[str, Any], edit: dict[str, Any]) -> None:
    """Replace some fields of a state, also of its parts."""
    for name, value in edit.items():
        if isinstance(value, dict):
            replace_fields(state[name], value)
        else:
            state[name] = value


@pytest.mark.parametrize(
    ("policy", "edit"),
    [
        ("cucb", {"visits": [-1, 1]}),
        ("cucb", {"place": [[0, 1, 2, 3, 9], [0, 1, 2, 3, 4]]}),
        ("cucb", {"place": [[0, 1, 2, 3, 3], [0, 1, 2, 3, 4]]}),
        ("cucb", {"drawn": [[9, 0, 0, 0, 0]] * 2}),
        ("cucb", {"credited": [[5] * 5] * 2}),
        ("cucb", {"total": [[1e9] * 5] * 2}),
        ("ts", {"alpha": [[0.5] * 5] * 2}),
        ("ts", {"beta": [[1e308] * 5] * 2}),
        ("moe", {"theta": [[1e308] * 5] * 2}),
        ("random", {"visits": [-1, 1]}),
        ("distinct", {"theta": [[1e308] * 5] * 2}),
        ("distinct", {"theta": [[-1e308] * 5] * 2}),
        ("distinct", {"visits": [-1, 1]}),
        ("distinct", {"gradient": {"energy": [-1.0, 0.0]}}),
        ("distinct", {"shared": {"belief": {"asked": [[-1.0] * 5]}}}),
        ("tangent", {"belief": {"asked": [[501.0] * 5] * 2}}),
        ("tangent", {"q": [[1.0] * 5] * 2}),
        ("tangent", {"mass": [[1.0] * 5] * 2}),
        ("tangent", {"theta": [[1e308] * 5] * 2}),
        ("noisy-or", {"visits": [-1, 1]}),
        ("noisy-or", {"drawn": [[9, 0, 0, 0, 0]] * 2}),
        ("noisy-or", {"rounds": [-1]}),
        ("noisy-or", {"recent": [2] * 64}),
        ("noisy-or", {"model": {"belief": {"beta": [1.5] * 5}}}),
        ("noisy-or", {"model": {"belief": {"root": [[0.0] * 5] * 5}}}),
        ("noisy-or", {"model": {"belief": {"root": [[0.1] * 5] * 5}}}),
        ("noisy-or", {"model": {"belief": {"noise": [0.1, 0.0]}}}),
        ("noisy-or", {"model": {"belief": {"drift": [9.0] * 5}}}),
        ("noisy-or", {"dual_prices": {"price": [-1.0, 0.0, 0.0]}}),
        ("noisy-or", {"dual_prices": {"squares": [0.0, 0.0, 0.0]}}),
    ],
    ids=str,
)
def test_an_invalid_state_with_a_valid_checksum_is_refused(
    policy: str, edit: dict[str, Any], tmp_path: Path
) -> None:
    save_edited_router(tmp_path / "router.json", policy, "state", edit)
    with pytest.raises(SavedFileError, match="no router can be in this state"):
        Router.load(tmp_path / "router.json")


@pytest.mark.parametrize(
    ("policy", "edit"),
    [
        ("distinct", {"clock": {"left": [0]}}),
        ("distinct", {"clock": {"left": [5_001]}}),
        ("distinct", {"clock": {"place": [1_000]}}),
        ("distinct", {"clock": {"cycle": [100_000]}}),
        ("distinct", {"clock": {"width": [0]}}),
        ("distinct", {"clock": {"width": [3]}}),
        ("distinct", {"clock": {"replaced": [-1]}}),
        ("distinct", {"clock": {"next_plan": [-1]}}),
        ("distinct", {"learned": {"missed": [0, -1, 0]}}),
        ("distinct", {"learned": {"squares": [0.0, -1.0, 0.0]}}),
        ("distinct", {"ledgers": {"requests": [0, 0, -1]}}),
        ("distinct", {"ledgers": {"requests_before": [-1, 0, 0]}}),
        ("distinct", {"weight": [[2.9] * 5] * 3}),
        ("distinct", {"waiting": [[-1] * 5] * 3}),
        ("tangent", {"clock": {"place": [-1]}}),
        ("noisy-or", {"clock": {"rounds": [-1]}}),
    ],
    ids=str,
)
def test_an_impossible_state_of_limits_with_a_valid_checksum_is_refused(
    policy: str, edit: dict[str, Any], tmp_path: Path
) -> None:
    save_edited_router(tmp_path / "router.json", policy, "limits", dict(edit))
    with pytest.raises(SavedFileError, match="no router can be in this state"):
        Router.load(tmp_path / "router.json")


def test_a_state_of_limits_is_needed_where_they_are_kept_and_only_there(tmp_path: Path) -> None:
    for policy, limits in (("distinct", None), ("random", {})):
        path = save_edited_router(tmp_path / "router.json", policy, "limits", {})
        data = json.loads(path.read_text())
        assert (data["limits"] is None) == (policy == "random")
        data["limits"] = limits
        data["checksum"] = compute_checksum(data)
        path.write_text(json.dumps(data))
        with pytest.raises(SavedFileError, match="a state of limits that are not kept, or none"):
            Router.load(path)


RECORDS: dict[str, Any] = {"clock": CLOCK, "ledgers": LEDGER, "learned": LEARNED}


def save_edited_router(path: Path, policy: str, part: str, edit: dict[str, Any]) -> Path:
    """Save a router of two decisions with some fields replaced in one part of the file."""
    router = Router(make_five_expert_problem(), policy)
    router.decide("a")
    router.decide("b")
    router.save(path)
    data = json.loads(path.read_text())
    for name, dtype in RECORDS.items() if part == "limits" else ():
        for field, column in edit.pop(name, {}).items():
            data[part][name][dtype.names.index(field)] = column
    replace_fields(data[part] or {}, edit)
    data["checksum"] = compute_checksum(data)
    path.write_text(json.dumps(data))
    return path


def test_unexpected_and_missing_draw_probabilities_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "router.json"
    for policy, wrong in (("cucb", [0.5, 0.5]), ("omd", [])):
        router = Router(make_five_expert_problem(), policy)
        router.decide()
        router.save(path)
        data = json.loads(path.read_text())
        data["open"][0]["draw_probabilities"] = wrong
        data["checksum"] = compute_checksum(data)
        path.write_text(json.dumps(data))
        with pytest.raises(SavedFileError, match="'draw_probabilities' is not float64"):
            Router.load(path)


def test_concurrent_saves_leave_a_complete_file(tmp_path: Path) -> None:
    router, path = Router(make_five_expert_problem()), tmp_path / "router.json"
    router.save(path)
    with ThreadPoolExecutor(3) as pool:
        saves = [pool.submit(router.save, path) for _ in range(60)]
        loads = [pool.submit(Router.load, path) for _ in range(60)]
    assert all(one.exception() is None for one in saves)
    assert all(one.exception() is None for one in loads)
    assert list(tmp_path.iterdir()) == [path]


def list_paths(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested data."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    return [prefix] + [p for key in keys for p in list_paths(data[key], (*prefix, key))]


def assert_router_works(router: Router) -> None:
    """A router from an accepted file works, with valid probabilities."""
    for t in range(25):
        available = router.problem.experts[:3] if t % 4 else None
        decision = router.decide(f"context {t % 3}", available)
        assert all(0 < p <= 1 for p in decision.draw_probabilities or ())
        assert all(0 < p <= 1 for p in (decision.inclusion or {}).values())
        router.reward(decision.id, router.rewards[0])
    for t in [*dict(router.engine.open), *router.engine.recent]:
        with contextlib.suppress(RewardConflict):
            router.reward(f"d{t}", router.rewards[1])


JUNK_VALUES: st.SearchStrategy[Any] = st.sampled_from([None, -1, 1e400, "x", [], {}, [[0]], True])


@pytest.mark.parametrize(
    "policy", ["omd", "cbwk", "ts-bwk", "moe", "random", "distinct", "tangent", "noisy-or"]
)
@given(choice=st.integers(0, 10_000), value=JUNK_VALUES, rehashed=st.booleans())
@settings(
    deadline=None,
    derandomize=True,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_changed_file_is_refused_and_never_crashes_with_a_valid_checksum(
    policy: str, choice: int, value: Any, rehashed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "router.json"
    router = Router(make_five_expert_problem(), policy)
    router.reward(router.decide("a").id, 0.5)
    router.decide("b")
    router.save(path)
    data = json.loads(path.read_text())
    *parents, last = (places := list_paths(data)[1:])[choice % len(places)]
    target = data
    for key in parents:
        target = target[key]
    same = target[last] == value and type(target[last]) is type(value)
    target[last] = value
    if rehashed and value != 1e400:
        data["checksum"] = compute_checksum(data)
    path.write_text(json.dumps(data))
    if not (rehashed or same):
        with pytest.raises(SavedFileError):
            Router.load(path)
    elif rehashed:
        with contextlib.suppress(SavedFileError):
            assert_router_works(Router.load(path))


def test_a_panel_that_costs_nothing_after_exchanges_can_be_loaded(tmp_path: Path) -> None:
    costs = {"usd": [0.1, 0.7, 0.0, 0.0]}  # 0.1 + 0.7 - 0.7 - 0.1 is less than 0, as rounded
    problem = Problem(["ann", "bob", "eve", "dan"], costs, [at_most("usd", 2)], draws=2)
    router = Router(problem, seed=1)
    decision = router.decide(available=["ann", "bob"])
    router.replace(decision.id, "bob")
    assert router.replace(decision.id, "ann").spend == {"usd": 0.0}
    router.save(tmp_path / "router.json")
    assert Router.load(tmp_path / "router.json").reward(decision.id, 0.5) == "learned"


def test_names_from_numpy_can_be_saved(tmp_path: Path) -> None:
    limits = [at_most("usd", 50, per="day", scope="tenant")]
    router = Router(Problem(["ann", "bob"], {"usd": [1, 2]}, limits, draws=1, traffic=5))
    decision = router.decide(np.str_("icu"), tenant=np.str_("acme"))
    router.set_tenant(np.str_("acme"), [limits[0].at(60)])
    router.reward(decision.id, 0.5, key=np.str_("k"))
    router.save(tmp_path / "router.json")
    loaded = Router.load(tmp_path / "router.json")
    assert loaded.tenant("acme")[0].bound == 60.0
    assert loaded.reward(decision.id, 0.5, key="k") == "duplicate"
