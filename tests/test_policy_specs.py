"""Policy specs: a name, and settings after a colon; errors have a remedy."""

import contextlib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylot.errors import PolicyError
from bylot.policies import (
    POLICIES,
    POLICY_NAMES,
    Auto,
    Distinct,
    NoisyOr,
    Omd,
    find_policy,
    policy_from_data,
    policy_to_data,
)
from bylot_paper.policies.bandits import Cbwk

NUMBERS = st.integers() | st.floats()
TEXTS = NUMBERS.map(str) | st.sampled_from(["true", "False", "none", "NULL", "sum", "instant", "x"])


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("noisy-or:explore=0.02", NoisyOr(explore=0.02)),
        ("noisy-or: explore = 0.02, guard=FALSE", NoisyOr(explore=0.02, guard=False)),
        ("distinct:pace=none", Distinct(pace=None)),
        ("auto:propensities=false,contexts=20", Auto(propensities=False, contexts=20)),
        ("omd-plain:batch=4", Omd(eta_mult=1.0, batch=4, baseline=False, dual=Omd.plain().dual)),
        ("cbwk:dual_on=instant", Cbwk(dual_on="instant")),
        ("moe", POLICIES["moe"]),
    ],
)
def test_a_spec_gives_a_policy_with_settings(spec: str, settings: object) -> None:
    assert find_policy(spec) == settings
    assert find_policy(spec) != find_policy("ts")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "noisy-or:explor=0.02",
            "has no setting 'explor'; did you mean 'explore'? Its settings are ",
        ),
        ("noisy-or:warp=9", "has no setting 'warp'; its settings are guard, explore, pace"),
        ("random:eta=1", "policy 'random' has no setting 'eta'; its only setting is guard"),
        ("noisy-or:explore=2", "setting explore 2: expected a number from 0 to 1"),
        ("noisy-or:explore=some", "setting explore 'some': expected a number"),
        ("noisy-or:guard=1", "setting guard 1: expected True or False"),
        (
            "noisy-or:explore",
            "'explore' is no SETTING=VALUE; settings follow a colon, as in noisy-or:",
        ),
        ("noisy-or:", "'' is no SETTING=VALUE"),
        ("noisy-or:explore=0,explore=1", "gives 'explore' twice"),
        ("noisyor:explore=0.02", "there is no policy 'noisyor'; did you mean 'noisy-or'?"),
        ("panel(explore=0.02)", "settings follow a colon"),
        ("panel,explore=0.02", "settings follow a colon"),
        ("atuo", "did you mean 'auto'?"),
    ],
)
def test_an_invalid_spec_is_refused_with_a_remedy(spec: str, expected: str) -> None:
    with pytest.raises(PolicyError) as caught:
        find_policy(spec)
    assert expected in str(caught.value)
    assert "upgrade" not in str(caught.value)


def test_the_error_for_an_unknown_name_lists_all_policies() -> None:
    with pytest.raises(
        PolicyError, match="auto, distinct, noisy-or, tangent, strict, omd, "
    ) as caught:
        find_policy("best")
    assert all(name in str(caught.value) for name in POLICY_NAMES)


def test_an_unknown_setting_in_data_is_refused_with_a_suggestion() -> None:
    data_of_policy = policy_to_data(NoisyOr())
    with pytest.raises(PolicyError, match="did you mean 'explore'"):
        policy_from_data({**data_of_policy, "explor": 0.02})
    with pytest.raises(PolicyError, match="if a later bylot wrote this, upgrade it"):
        policy_from_data({**data_of_policy, "quantum": True})


@given(st.sampled_from(POLICY_NAMES), st.data())
def test_any_values_are_settings_or_refused(name: str, data: st.DataObject) -> None:
    settings = [field.name for field in fields(find_policy(name))]
    pairs = data.draw(st.lists(st.tuples(st.sampled_from([*settings, "x"]), TEXTS), min_size=1))
    spec = f"{name}:{','.join(f'{setting}={text}' for setting, text in pairs)}"
    try:
        policy = find_policy(spec)
    except PolicyError:
        return
    assert type(policy) is type(find_policy(name))


@given(st.text())
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    for spec in (text, f"noisy-or:{text}", f"noisy-or:explore={text}"):
        with contextlib.suppress(PolicyError):
            find_policy(spec)
