"""Saving, loading and continuing equals one long run; invalid files are refused."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from bylot import Problem, Router, at_least, at_most, policies, share
from bylot.errors import PolicyError, RewardConflict, SavedFileError
from bylot.limits.records import CLOCK, LEARNED, LEDGER
from bylot.policies import POLICIES, Distinct, Omd, Policy
from bylot.router.config import problem_from_data, problem_to_data
from bylot.router.saved_file import hash_body
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
    first.save(tmp_path / "router.bylot")
    second = Router.load(tmp_path / "router.bylot")
    assert snapshot_router(second) == snapshot_router(first)
    play_router(second, environment, cut, 250)
    assert snapshot_router(second) == snapshot_router(long_run)
    assert str(second.status()) == str(long_run.status())


@pytest.mark.parametrize("policy", SAVED_POLICIES)
def test_open_decisions_and_old_rewards_survive_saving(policy: str, tmp_path: Path) -> None:
    router = Router(make_five_expert_problem(), SAVED_POLICIES[policy], seed=3)
    rewarded, unrewarded = router.decide(), router.decide("other")
    router.reward(rewarded.id, 0.5)
    router.save(tmp_path / "router.bylot")
    loaded = Router.load(tmp_path / "router.bylot")
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
    path = tmp_path / "router.bylot"
    Router(make_five_expert_problem()).save(path)
    path.write_bytes(path.read_bytes().replace(b'"version": 12', b'"version": 13', 1))
    with pytest.raises(SavedFileError, match="has version 13; this bylot reads version 12"):
        Router.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a bylot-router file"),
        ("{", "is not a bylot-router file"),
        ("[]", "is not a bylot-router file"),
        ('{"format": "bylot-router", "version": 12}', "was changed"),
        (
            '{"form": "bylot-router", "version": 1}',
            "has version 1; this bylot reads version 12; use the bylot that wrote it",
        ),
        (
            '{"format":"bylot-router","version":9,"problem":{"experts":["ann"]}}',  # all one line
            "has version 9; this bylot reads version 12; use the bylot that wrote it",
        ),
        ("[" * 100_000, "is not a bylot-router file"),
        ("\x00\x01", "is not a bylot-router file"),
    ],
)
def test_a_file_that_is_not_a_router_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "router.bylot"
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


def test_a_save_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "router.bylot"
    router = Router(make_five_expert_problem())
    router.save(path)
    before = path.read_bytes()
    router.decide()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(SavedFileError, match="cannot be written: No space left on device"):
        router.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@contextlib.contextmanager
def edit_saved_file(path: Path, *, resealed: bool = True) -> Iterator[dict[str, Any]]:
    """Give the content of a saved file as plain data, and write it again."""
    head, _, body = path.read_bytes().partition(b"\n")
    content = msgpack.decode(body, strict=False)
    yield content
    header, body = json.loads(head), msgpack.encode(content)
    if resealed:
        header["seal"] = hash_body(body)
    path.write_bytes(json.dumps(header).encode() + b"\n" + body)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "no folder" / "router.bylot", tmp_path / "file" / "router.bylot"):
        with pytest.raises(SavedFileError, match=f"{path} cannot be written"):
            Router(make_five_expert_problem()).save(path)


@pytest.mark.parametrize(
    "edit",
    [
        {"core.state.visits": np.array([-10, 0]).tobytes()},
        {"core.state.q": np.array([[0.0, 0.25, 0.25, 0.25, 0.25]] * 2).tobytes()},
        {"core.state.q": np.full((2, 5), 1e308).tobytes()},
        {"core.state.q": np.full((2, 5), np.nan).tobytes()},
        {"core.state.q": np.full(9, 0.2).tobytes()},
        {"core.state.q": [0.2] * 10},
        {"core.contexts": []},
        {"core.contexts": ["a", "a"]},
        {"config.problem.draws": 2**63},
        {"config.policy.batch": 2**63},
        {"config.policy.baseline": {}},
        {"config.memory": 0},
        {"decisions.1.made.context": "c"},
        {"decisions.1.made.t": 2},
        {"decisions.1.made.seats": [0, 5]},
        {"decisions.1.made.seats": [0, 1, 2]},
        {"decisions.1.made.share": 0.0},
        {"decisions.1.made.weight": -1.0},
        {"decisions.1.made.draw_probabilities": np.full(2, 2.0).tobytes()},
        {"decisions.1.made.learned_inclusion": np.full(5, 0.5).tobytes()},
        {"decisions.1.made.available_mask": b"\x01"},
        {"decisions.1.made.spend": {"usd": -1.0}},
        {"decisions.1.is_cancelled": True},
    ],
    ids=str,
)
def test_an_invalid_file_with_a_valid_hash_is_refused(edit: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "router.bylot"
    router = Router(make_five_expert_problem(), "omd")
    router.decide("a")
    router.decide("b")
    router.save(path)
    with edit_saved_file(path) as data:
        for place, value in edit.items():
            target, last = find_place(data, place.split("."))
            assert target[last] != value
            target[last] = value
    with pytest.raises(SavedFileError, match="is damaged"):
        Router.load(path)


def find_place(data: Any, place: list[str]) -> tuple[Any, Any]:
    """Return the container of a value in nested data, and its key there."""
    keys = [int(key) if key.isdecimal() else key for key in place]
    for key in keys[:-1]:
        data = data[key]
    return data, keys[-1]


def replace_arrays(data: dict[str, Any], arrays: Any, edit: dict[str, Any]) -> None:
    """Replace some arrays of a saved state, also of its parts, by others of their types."""
    for name, value in edit.items():
        array = getattr(arrays, name)
        if isinstance(value, dict):
            replace_arrays(data[name], array, value)
        else:
            data[name] = np.array(value, array.dtype).tobytes()


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
def test_an_invalid_state_with_a_valid_hash_is_refused(
    policy: str, edit: dict[str, Any], tmp_path: Path
) -> None:
    save_edited_router(tmp_path / "router.bylot", policy, "state", edit)
    with pytest.raises(SavedFileError, match="no router can be in this state"):
        Router.load(tmp_path / "router.bylot")


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
def test_an_impossible_state_of_limits_with_a_valid_hash_is_refused(
    policy: str, edit: dict[str, Any], tmp_path: Path
) -> None:
    save_edited_router(tmp_path / "router.bylot", policy, "limits", dict(edit))
    with pytest.raises(SavedFileError, match="no router can be in this state"):
        Router.load(tmp_path / "router.bylot")


def test_a_state_of_limits_is_needed_where_they_are_kept_and_only_there(tmp_path: Path) -> None:
    for policy, limits in (("distinct", None), ("random", {})):
        path = save_edited_router(tmp_path / "router.bylot", policy, "limits", {})
        with edit_saved_file(path) as data:
            assert (data["core"]["limits"] is None) == (policy == "random")
            data["core"]["limits"] = limits
        with pytest.raises(SavedFileError, match="state of limits is missing, or nobody"):
            Router.load(path)


RECORDS: dict[str, Any] = {"clock": CLOCK, "ledgers": LEDGER, "learned": LEARNED}


def save_edited_router(path: Path, policy: str, part: str, edit: dict[str, Any]) -> Path:
    """Save a router of two decisions with some arrays replaced in one part of the file."""
    router = Router(make_five_expert_problem(), policy)
    router.decide("a")
    router.decide("b")
    router.save(path)
    arrays = router.core.state
    if part == "limits" and router.core.book.tables is not None:
        arrays = router.core.book.tables.state
    with edit_saved_file(path) as data:
        for name, dtype in RECORDS.items() if part == "limits" else ():
            for field, column in edit.pop(name, {}).items():
                raw = np.array(column, dtype[field]).tobytes()
                data["core"][part][name][dtype.names.index(field)] = raw
        replace_arrays(data["core"][part], arrays, edit)
    return path


def test_unexpected_and_missing_draw_probabilities_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "router.bylot"
    for policy, wrong in (("cucb", [0.5, 0.5]), ("omd", [])):
        router = Router(make_five_expert_problem(), policy)
        router.decide()
        router.save(path)
        with edit_saved_file(path) as data:
            data["decisions"][0]["made"]["draw_probabilities"] = np.array(wrong).tobytes()
        with pytest.raises(SavedFileError, match="probabilities that this pool cannot have"):
            Router.load(path)


def test_concurrent_saves_leave_a_complete_file(tmp_path: Path) -> None:
    router, path = Router(make_five_expert_problem()), tmp_path / "router.bylot"
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
    for t in [*dict(router.engine.open), *router.engine.open.recent]:
        with contextlib.suppress(RewardConflict):
            router.reward(f"d{t}", router.rewards[1])


JUNK_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 1e400, "x", [], {}, [[0]], True, b"", bytes(8), b"\xff" * 40]
)


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
def test_a_changed_file_is_refused_and_never_crashes_with_a_valid_hash(
    policy: str, choice: int, value: Any, rehashed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "router.bylot"
    router = Router(make_five_expert_problem(), policy)
    router.reward(router.decide("a").id, 0.5)
    router.decide("b")
    router.save(path)
    with edit_saved_file(path, resealed=rehashed) as data:
        *parents, last = (places := list_paths(data)[1:])[choice % len(places)]
        target = data
        for key in parents:
            target = target[key]
        same = target[last] == value and type(target[last]) is type(value)
        target[last] = value
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
    router.save(tmp_path / "router.bylot")
    assert Router.load(tmp_path / "router.bylot").reward(decision.id, 0.5) == "learned"


def test_settings_from_numpy_can_be_saved(tmp_path: Path) -> None:
    policy = Distinct(eps=np.float64(0.1))
    Router(make_five_expert_problem(), policy).save(tmp_path / "router.bylot")
    assert Router.load(tmp_path / "router.bylot").policy == policy


def test_names_from_numpy_can_be_saved(tmp_path: Path) -> None:
    limits = [at_most("usd", 50, per="day", scope="tenant")]
    router = Router(Problem(["ann", "bob"], {"usd": [1, 2]}, limits, draws=1, traffic=5))
    decision = router.decide(np.str_("icu"), tenant=np.str_("acme"))
    router.set_tenant(np.str_("acme"), [limits[0].at(60)])
    router.reward(decision.id, 0.5, key=np.str_("k"))
    router.save(tmp_path / "router.bylot")
    loaded = Router.load(tmp_path / "router.bylot")
    assert loaded.tenant("acme")[0].bound == 60.0
    assert loaded.reward(decision.id, 0.5, key="k") == "duplicate"
