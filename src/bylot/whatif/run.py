"""A what-if run from setup to report, and what is left of one that is stopped."""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bylot.engine import Threads, progress
from bylot.plots.style import drawing, folder_for
from bylot.report.write import write_pages
from bylot.text import say, table
from bylot.whatif.contents import contents, title, uneven
from bylot.whatif.figures import draw
from bylot.whatif.findings import Findings, data
from bylot.whatif.play import OURS, play, tried
from bylot.whatif.setup import Job, Play, Setup
from bylot.whatif.words import summary
from bylot.whatif.yardsticks import MARKS, mark


class Made(NamedTuple):
    """What a run found, as objects and as plain data, and the files it wrote."""

    found: Findings
    data: dict[str, Any]
    paths: list[Path]


def run(setup: Setup, out: Path, workers: int) -> Made:
    """Play, measure, write; Ctrl-C leaves a report on what was finished."""
    drawing()  # before the work whose figures would fail
    place = folder_for(out / "figures")
    found = computed(setup, workers)
    sentences = summary(found)
    numbers = data(found, sentences)
    say("... figures and report")
    figures = draw(found, place)
    blocks = contents(found, sentences, figures)
    pages = write_pages(blocks, title(found), out, {"whatif.json": numbers})
    return Made(found, numbers, [*pages, *(path for pair in figures.values() for path in pair)])


def computed(setup: Setup, workers: int) -> Findings:
    """The results of all jobs, the same for any number of workers; of some, if it is stopped."""
    results: dict[Job, Any] = {}
    with warnings.catch_warnings():
        # Of every play: `tried` has heard each once, and the report repeats it.
        for kind in OURS:
            warnings.simplefilter("ignore", kind)
        said = tried(setup)
        jobs = setup.jobs(said.refused, [*MARKS])
        start = time.monotonic()
        say(f"... {len(jobs):,} jobs: plays of {setup.rounds:,} requests, and yardsticks")
        try:
            with progress(len(jobs), unit="job") as advance:
                for done in Threads(workers).run(jobs, partial(work, setup)):
                    results[done.job] = done.result
                    advance(1)
        except KeyboardInterrupt:
            say(f"stopped after {len(results):,} of {len(jobs):,} jobs")
            return Findings(setup, said, results, stopped=True)
    say(f"... computed in {time.monotonic() - start:.1f} s")
    return Findings(setup, said, results)


def work(setup: Setup, job: Job) -> Any:
    """One job."""
    return play(setup, job) if isinstance(job, Play) else mark(setup, job)


def render(made: Made) -> str:
    """For people: the sentences, a table, and where the report is."""
    found = made.found
    head = ("policy", "reward", "±", "last tenth", "seeds inside", "periods inside")
    rows = [(name, *one.earned, *one.inside) for name, one in found.standings.items()]
    refused = [f"{name} was not played: {why}" for name, why in found.tried.refused.items()]
    took = [f"{one} here" for one in found.setup.took()]
    story = [found.setup.world.story, *took, ""]
    if found.setup.rounds != found.setup.due:
        story.insert(1, uneven(found.setup))
    pages = [str(path) for path in made.paths if path.suffix in (".html", ".md", ".json")]
    lines = [*made.data["summary"], "", *table([head, *rows]), *refused, "", *pages]
    return "\n".join([*story, *lines])
