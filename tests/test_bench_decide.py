"""The benchmark of decisions runs and prints the documented table."""

import json

from bylot_bench import decide


def test_a_short_run_has_the_documented_keys_and_a_table() -> None:
    result = json.loads(json.dumps(decide.run(seconds=0.05, turns=1)))
    rates = result["rounds_per_cpu_s"]
    assert set(rates) | set(result["absent"]) == {*decide.OWN_ROUTERS, "river", "mabwiser"}
    for peer, ratio in result["ratios"].items():
        assert ratio == rates["bylot"] / rates[peer]
    text = decide.render(result)
    assert "bylot omd" in text
    assert "bylot distinct" in text


def test_a_missing_library_is_named_with_the_install_command() -> None:
    result = {"rounds_per_cpu_s": {"bylot": 2.0}, "ratios": {}, "absent": ["river"]}
    assert "river is not installed; pip install '.[bench]'" in decide.render(result)
