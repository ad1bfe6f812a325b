"""What limits of the calendar mean: per request, at most for how many requests, and when spent.

The bounds that policies are bound with are in `problem.window_bounds`; what they draw under follows
the forecast of each window.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from bylot._text import format_number, join_words
from bylot._windows import WINDOW_WORDS
from bylot.errors import BylotError
from bylot.limits.binding import get_period
from bylot.problem import Problem
from bylot.problem.limits import WhenSpent
from bylot.problem.window_bounds import compute_request_bounds
from bylot.problem_files.problem_file import ProblemFile
from bylot.problem_files.written_limit import WrittenLimit

WHEN_SPENT_TEXTS: dict[WhenSpent, str] = {
    "cheapest": "as it runs out, panels get cheaper, and requests are refused when not even the "
    "cheapest fits",
    "fewer": "as it runs out, panels get cheaper, then smaller, down to one member, and requests "
    "are refused when no expert fits",
    "refuse": "as it runs out, panels get little cheaper, and requests are refused sooner",
}
"""What happens as a budget runs out, in a sentence."""

REQUESTS_TOLERANCE = 1e-9  # relative: 0.3 pays for three panels of 0.1


def require_windows(file: ProblemFile, remedy: str) -> None:
    """Refuse a traffic for a problem without limits of the calendar."""
    if not file.problem.calendars:
        raise BylotError(
            f"--traffic is for limits per {WINDOW_WORDS}, and the problem has none", remedy=remedy
        )


def check_known_times(file: ProblemFile) -> None:
    """Refuse limits of the calendar while nobody knows when requests arrive."""
    if file.problem.calendars:
        per, zone = file.problem.calendars[0]
        what = f"the limits per {per} of {file.path} need to know when requests arrive"
        example = f"per_day={file.problem.traffic or 2_000:g},start=2026-03-01,zone={zone}"
        raise BylotError(what, remedy=f"add --traffic daily:{example}")


def describe_when_kept(problem: Problem) -> str:
    """Say when the limits of a problem hold: in windows, and at the end of periods."""
    default = "" if problem.period else " (the default)"
    held = f"at the end of every {get_period(problem, None):,} requests{default}"
    if not problem.calendars:
        return held
    others = any(limit.per is None for limit in problem.limits)
    return "in their windows of the calendar" + f", the others {held}" * others


def find_window_data(written: WrittenLimit, problem: Problem) -> dict[str, Any] | None:
    """The window of a limit; None if it is for all requests.

    requests:       of an average window, at the expected traffic; None: it is learned
    per_request:    what a budget is for each of them
    cheapest_panel: what no panel costs less than, as declared
    most_requests:  how many panels of that cost a budget pays for; None: any number
    """
    limit = written.limit
    if limit.per is None:
        return None
    found: dict[str, Any] = {"per": limit.per, "zone": limit.zone}
    if not limit.is_total:
        return found
    most = None
    cheapest = float(np.sort(problem.costs[limit.name])[: problem.smallest_panel].sum())
    if cheapest > 0:
        most = math.floor(limit.bound / cheapest * (1 + REQUESTS_TOLERANCE))
    return {
        **found,
        "when_spent": limit.when_spent,
        "requests": written.requests,
        "per_request": None if written.requests is None else limit.bound / written.requests,
        "cheapest_panel": cheapest,
        "most_requests": most,
    }


def describe_windows(file: ProblemFile, found: dict[str, Any]) -> list[str]:
    """A sentence or two on each limit of the calendar, and on each one on some contexts."""
    lines = []
    for written, limit in zip(file.limits, found["limits"], strict=True):
        if limit["window"] is not None:
            parts = describe_window(file, written, limit["window"])
            lines.append(f"{written.words}, {' '.join(parts)}")
        elif written.limit.where:
            contexts = join_words(written.limit.where, "and")
            period = get_period(file.problem, None)
            lines.append(
                f"{written.words}: the average over the requests whose context is exactly "
                f"{contexts}, which is kept at all times, in periods of {period:,} of them."
            )
    return lines


def describe_request_bounds(file: ProblemFile) -> list[str]:
    """What budgets of the calendar are per request at the traffic, for optima."""
    parts = []
    bounds = compute_request_bounds(file.problem, one_tenant=True).tolist()
    for written, bound in zip(file.limits, bounds, strict=True):
        if written.requests is not None:
            fair = written.limit.bound / written.requests
            text = f'"{written.words}" is {format_number(fair)} per request'
            text += ", if all are of one tenant" if written.limit.scope else ""
            if bound > fair * (1 + REQUESTS_TOLERANCE):
                text += (
                    ", less than the cheapest panels cost, so requests are refused: optima are "
                    f"at {format_number(bound)}"
                )
            parts.append(text)
    if not parts:
        return []
    return [f"At {format_number(file.problem.traffic)} requests per day, {'; '.join(parts)}."]


def describe_window(
    file: ProblemFile, written: WrittenLimit, window: dict[str, Any]
) -> Iterator[str]:
    """What a limit means in its windows."""
    per, limit = window["per"], written.limit
    zone = f"by the calendar of {window['zone']}"
    if not limit.is_total:
        whose = " of the tenant" if limit.scope else ""
        counted = f" in {join_words(limit.where, 'and')}" if limit.where else ""
        yield f"{zone}: the average over the requests{whose}{counted} of each {per}."
        return
    requests, most = window["requests"], window["most_requests"]
    meaning = "what that is per request is learned from the requests (or give --traffic)"
    if limit.scope:
        meaning = "what it means per request depends on the tenant's own requests"
    elif limit.where:
        meaning = "what that is per request is learned from the requests that count"
    if requests is not None:
        share = format_number(window["per_request"])
        meaning = f"{share} per request at {format_number(file.problem.traffic)} requests per day"
        if per != "day":
            meaning += f", {format_number(requests)} per {per}"
    yield f"{zone}: {meaning}."
    if most is None:
        yield "The cheapest panel costs nothing, so it is never spent."
        return
    whose = " of a tenant" if limit.scope else ""
    yield (
        f"The cheapest panel, of {file.problem.smallest_panel}, costs "
        f"{format_number(window['cheapest_panel'])}, so it suffices for at most {most:,} "
        f"request{'s' * (most != 1)} per {per}{whose}; {WHEN_SPENT_TEXTS[window['when_spent']]}."
    )
    if requests is not None and requests > most:
        part = f"{requests - most:,.0f} of {format_number(requests)}"
        yield f"At least {part} requests of an average {per} will be refused."
