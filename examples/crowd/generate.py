"""Make the generated file of this folder anew: how well workers who do not exist did their tasks.

    python examples/crowd/generate.py

Nothing here was measured. A worker has a level by experience, and a bent for some skills and kinds
of tasks; a score varies around both. One in twenty is missing, as if nobody had been asked.
"""

import random
from pathlib import Path

HERE = Path(__file__).parent
SEED = 20_260_102
LEVEL = {"ada": 0.7, "ben": 0.68, "chloe": 0.66, "dev": 0.58, "emil": 0.55, "fay": 0.55}
LEVEL |= {"gus": 0.52, "hana": 0.5, "ivo": 0.42, "jun": 0.42, "kim": 0.38, "lee": 0.38}
KINDS, SKILLS = ["image", "text"], ["detail", "judgement", "language"]
TASKS = 30  # of each kind and skill
BLANKS = 0.05  # of all scores


def contents() -> dict[str, str]:
    """Each file and what it holds."""
    chance = random.Random(SEED)
    cells = [(kind, skill) for kind in KINDS for skill in SKILLS]
    bent = {(name, *cell): 0.5 * chance.random() - 0.25 for name in LEVEL for cell in cells}
    lines = [",".join(["task", "kind", "skill", *LEVEL])]
    for kind, skill in cells:
        for n in range(TASKS):
            hard = 0.3 * chance.random() - 0.15
            scores = []
            for name, level in LEVEL.items():
                score = level + bent[name, kind, skill] - hard + 0.3 * chance.random() - 0.15
                told = f"{min(1.0, max(0.0, score)):.2f}"
                scores.append("" if chance.random() < BLANKS else told)
            lines.append(",".join([f"generated-{kind}-{skill}-{n + 1:02}", kind, skill, *scores]))
    return {"generated-tasks.csv": "\n".join(lines) + "\n"}


if __name__ == "__main__":
    for name, content in contents().items():
        (HERE / name).write_text(content, encoding="utf-8")
        print(HERE / name)
