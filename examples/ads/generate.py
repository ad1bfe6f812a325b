"""Make the generated file of this folder anew: what ads that do not exist meant to readers.

    python examples/ads/generate.py

Nothing here was measured. An ad is made for one interest or two and dull to others; at some times
of day it is met with more interest, and no two readers are alike.
"""

import random
from pathlib import Path

HERE = Path(__file__).parent
SEED = 20_260_103
MADE_FOR = {
    "bicycle": ("outdoors", "home"),
    "bookshop": ("culture",),
    "camera": ("culture", "outdoors"),
    "flights": ("travel",),
    "hostel": ("travel", "outdoors"),
    "vaccines": ("home",),
    "shelter": ("home", "culture"),
    "elections": ("culture",),
}
INTERESTS = ["culture", "home", "outdoors", "travel"]
TIMES = {"morning": 0.8, "afternoon": 0.9, "evening": 1.0}  # patience of readers
PAGES = 20  # of each time and interest


def contents() -> dict[str, str]:
    """Each file and what it holds."""
    chance = random.Random(SEED)
    lines = [",".join(["page", "time", "interest", *MADE_FOR])]
    pull = {(ad, time): 0.3 * chance.random() for ad in MADE_FOR for time in TIMES}
    for time, patience in TIMES.items():
        for interest in INTERESTS:
            for n in range(PAGES):
                worth = []
                for ad, interests in MADE_FOR.items():
                    base = 0.35 if interest in interests else 0.05
                    value = patience * (base + pull[ad, time]) * 2 * chance.random()
                    worth.append(f"{min(1.0, value):.2f}")
                page = f"generated-{time}-{interest}-{n + 1:02}"
                lines.append(",".join([page, time, interest, *worth]))
    return {"generated-pages.csv": "\n".join(lines) + "\n"}


if __name__ == "__main__":
    for name, content in contents().items():
        (HERE / name).write_text(content, encoding="utf-8")
        print(HERE / name)
