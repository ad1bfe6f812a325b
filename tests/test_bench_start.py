"""The benchmark of a start runs the example of the README and prints the documented table."""

import json
from pathlib import Path

from bylot_bench import start

README = Path(__file__).parent.parent / "README.md"


def test_the_measured_lines_are_those_of_the_readme() -> None:
    assert README.read_text().partition("```python\n")[2].partition("```")[0] == start.TEN_LINES


def test_a_short_run_has_the_documented_keys_and_a_table() -> None:
    result = json.loads(json.dumps(start.run(turns=1)))
    best = result["best_cpu_s"]
    assert list(best) == list(result["median_cpu_s"])
    assert all(used > 0 for used in best.values())
    text = start.render(result)
    assert all(name in text for name in best)
    assert "1.00" in text
