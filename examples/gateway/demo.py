"""Ask a panel of real language models through the gateway, and say who was asked and who won."""

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from openai import OpenAI

HERE = Path(__file__).parent
QUESTIONS = (
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Spain?", "Madrid"),
    ("What is the capital of Italy?", "Rome"),
    ("What is the capital of Germany?", "Berlin"),
    ("What is the capital of Japan?", "Tokyo"),
    ("What color is the sky on a clear day?", "blue"),
    ("What color is grass?", "green"),
    ("What color is a ripe banana?", "yellow"),
    ("Which animal barks?", "dog"),
    ("Which animal says meow?", "cat"),
)


def wait_for(url: str) -> None:
    """Wait until a server answers."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


def ask_all(client: OpenAI, rounds: int) -> None:
    """Ask the questions, and print what became of each."""
    asked, won, cost, good = Counter[str](), Counter[str](), 0.0, 0
    for question, expected in QUESTIONS * rounds:
        answer = client.chat.completions.create(
            model="bylot/demo",
            messages=[{"role": "user", "content": question}],
            extra_body={"metadata": {"bylot_expected": expected}},
        )
        details = answer.bylot  # type: ignore[attr-defined]
        asked.update(list(details["members"]))
        won[details["winner"]] += 1
        cost += details["cost_usd"]
        good += max(details["scores"].values(), default=0) == 1
        text = (answer.choices[0].message.content or "").replace("\n", " ")
        print(f"{question:40} {details['winner']:8} {text[:60]}", flush=True)
    count = len(QUESTIONS) * rounds
    print(f"\n{good} of {count} right, {cost / count:.6f} dollars per request (at most 0.0006)")
    for name in asked:
        print(f"{name:8} asked {asked[name]:3}, won {won[name]:3}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/demo.db"
        config = str(HERE / "bylot.yaml")
        model = subprocess.Popen(
            [sys.executable, str(HERE / "serve_smollm2.py")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = subprocess.Popen(
            [sys.executable, "-m", "bylot", "serve", "--config", config, "--store", store]
        )
        try:
            wait_for("http://127.0.0.1:9001/health")
            wait_for("http://127.0.0.1:8000/readyz")
            ask_all(OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none"), rounds=2)
        finally:
            for process in (server, model):
                process.terminate()
                process.wait(60)


if __name__ == "__main__":
    main()
