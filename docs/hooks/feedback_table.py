"""Writes what feedback is worth into pages, from the measurements of `bylot reproduce default`.

`python docs/hooks/feedback_table.py` after a run was copied to docs/default; a test compares.
"""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
MEASURED = DOCS / "default" / "default.json"
FEEDBACK_PAGES = ("fit.md", "default/evidence.md")
BEGIN = "<!-- what feedback is worth: written by docs/hooks/feedback_table.py -->"
END = "<!-- end -->"
KINDS = {"panel": "one score", "winner": "the winner", "members": "member scores"}
SPANS = {"reward_1000": "first 1,000", "reward": "all"}
NOT_MEASURED = "The report has not been measured with member scores yet."
HEAD = ("scenario", "requests", *KINDS.values(), "best fixed panels")


def make_feedback_block(measured: Path = MEASURED) -> str:
    """The answer and a table of the policy that uses all kinds of feedback."""
    found = json.loads(measured.read_text(encoding="utf-8")).get("feedback")
    if not found or found["policy"] is None:
        return NOT_MEASURED
    lines = [one for one in found["lines"] if one["policy"] == found["policy"]]
    seeds = min(one["seeds"] for one in lines)
    said = f"Reward per request of `{found['policy']}`, mean ± standard error over {seeds} seeds:"
    rows = ["| " + " | ".join(HEAD) + " |", "|---|---" + "|--:" * (len(HEAD) - 2) + "|"]
    for scenario in dict.fromkeys(one["scenario"] for one in lines):
        known = {one["feedback"]: one for one in lines if one["scenario"] == scenario}
        for column, label in SPANS.items():
            cells = [format_measure(known.get(kind), column) for kind in KINDS]
            best = f"{next(iter(known.values()))['best_fixed']:.3f}"
            rows.append("| " + " | ".join([scenario, label, *cells, best]) + " |")
    return "\n".join([found["answer"], "", said, "", *rows])


def format_measure(line: dict[str, Any] | None, column: str) -> str:
    """A mean and its standard error, if it was measured.

    >>> format_measure({"reward": {"mean": 0.84061, "error": 0.0015}}, "reward")
    '0.841 ± 0.002'
    """
    if line is None:
        return "–"
    mean, error = line[column]["mean"], line[column]["error"]
    return f"{mean:.3f}" + ("" if error is None else f" ± {error:.3f}")


def fill_page(text: str, block: str) -> str:
    """A page with this block between its marks."""
    filled, count = re.subn(
        f"{re.escape(BEGIN)}\n.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n{block}\n{END}",
        text,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(f"a page needs the marks {BEGIN} and {END} once")
    return filled


if __name__ == "__main__":
    for page in FEEDBACK_PAGES:
        path = DOCS / page
        filled = fill_page(path.read_text(encoding="utf-8"), make_feedback_block())
        path.write_text(filled, encoding="utf-8")
        print(path)
