"""Make the generated files of this folder anew: models that do not exist, and what they answered.

    python examples/hospital/generate.py

Nothing here was measured. Every lab has a large and a small model and is better in some specialties
than in others; a question is answered correctly with a chance that follows from both.
"""

import math
import random
from pathlib import Path

HERE = Path(__file__).parent
SEED = 20_260_101
LABS = ["01ai", "ai21", "alibaba", "anthropic", "cohere", "deepseek"]
LABS += ["google", "meta", "microsoft", "mistral", "openai", "together"]
SPECIALTIES = ["anatomy", "cardiology", "genetics", "medicine", "neurology", "nutrition"]
SPECIALTIES += ["renal", "virology"]
QUESTIONS = 15  # of each specialty
BLANKS = 0.01  # of all answers


def contents() -> dict[str, str]:
    """Each file and what it holds."""
    chance = random.Random(SEED)
    models = [(f"generated-{lab}-{size}", lab, size) for lab in LABS for size in ("large", "small")]
    bent = {(lab, topic): 3 * chance.random() - 1.5 for lab in LABS for topic in SPECIALTIES}
    experts = ["expert,group,params_b,cost_usd_per_call"]
    for name, lab, size in models:
        large = size == "large"
        params = (
            str(70 + int(330 * chance.random())) if large else str(3 + int(30 * chance.random()))
        )
        params = "" if large and chance.random() < 0.3 else params  # not told by its lab
        cost = (0.003 + 0.006 * chance.random()) if large else (0.0002 + 0.0006 * chance.random())
        experts.append(f"{name},{lab},{params},{cost:.6f}")
    questions, outcomes = ["qid,specialty"], [",".join(["qid", *(name for name, _, _ in models)])]
    for topic in SPECIALTIES:
        for n in range(QUESTIONS):
            qid, hard = f"generated-{topic}-{n + 1:02}", 3 * chance.random() - 1.2
            answers = []
            for _, lab, size in models:
                skill = (0.7 if size == "large" else -0.5) + bent[lab, topic] - hard
                right = chance.random() < 1 / (1 + math.exp(-skill))
                answers.append("" if chance.random() < BLANKS else str(int(right)))
            questions.append(f"{qid},{topic}")
            outcomes.append(",".join([qid, *answers]))
    made = {"experts": experts, "questions": questions, "outcomes": outcomes}
    return {f"generated-{name}.csv": "\n".join(lines) + "\n" for name, lines in made.items()}


if __name__ == "__main__":
    for name, content in contents().items():
        (HERE / name).write_text(content, encoding="utf-8")
        print(HERE / name)
