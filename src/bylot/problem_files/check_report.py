"""The report of `bylot problem check`: its numbers, tables and sentences."""

from collections.abc import Iterator
from typing import Any

from bylot import policies
from bylot._text import format_labels, format_number, format_sizes, format_table, join_words
from bylot.limits.binding import get_period
from bylot.limits.report import describe_promise
from bylot.policies.registry import describe_smaller_panels
from bylot.problem import Problem
from bylot.problem.limits import UPPER, WhenSpent
from bylot.problem_files.check import format_looser_limit, limits_in_conflict
from bylot.problem_files.problem_file import ProblemFile
from bylot.problem_files.written_limit import WrittenLimit

REPORTED_MEMORY_BYTES = 2**20
WHEN_SPENT_TEXTS: dict[WhenSpent, str] = {
    "cheapest": "as it runs out, panels get cheaper, and requests are refused when not even the "
    "cheapest fits",
    "fewer": "as it runs out, panels get cheaper, then smaller, down to one member, and requests "
    "are refused when no expert fits",
    "refuse": "as it runs out, panels get little cheaper, and requests are refused sooner",
}
"""What happens as a budget runs out, in a sentence."""


def render_check(file: ProblemFile, found: dict[str, Any], details: bool) -> str:
    """The check as text: four numbers; details are the problem, tables, and what they mean."""
    lead = format_labels(found["summary"])
    windows = describe_windows(file, found)
    smaller = describe_smaller_panels(policies.Auto(), file.problem)
    looser = [f"Warning: {smaller.explain(file.format_limit)}."] if smaller else []
    looser += describe_looser_limits(found)
    if not details:
        more = "Use --details for costs, groups, and the range and the promise of each limit."
        return "\n".join([*lead, *windows, *looser, more])
    problem = file.problem
    low, high = file.rewards
    source = f" (from {file.csv})" if file.csv else ""
    sizes = format_sizes(problem.min_draws or problem.draws, problem.draws)
    head = [
        f"{file.path}: {problem.size} experts{source}, {sizes} drawn for each request",
        f"rewards from {low:g} to {high:g}; the limits hold {describe_when_kept(problem)}",
    ]
    if file.contexts:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in file.contexts.items())
        head.append(f"contexts and their shares of the requests: {shares}")
    tables = [format_table(table) for table in make_check_tables(file, found) if len(table) > 1]
    lines = [
        *describe_limits(file),
        *windows,
        *describe_promises(file, found),
        *looser,
        *describe_auto(file, found),
    ]
    return "\n\n".join("\n".join(part) for part in [lead, head, *tables, lines])


def make_check_tables(file: ProblemFile, found: dict[str, Any]) -> list[list[tuple[str, ...]]]:
    """Tables of costs, groups, limits and policies, each with its header."""
    costs = [
        (name, *(f"{one:.4g}" for one in (row.min(), row.mean(), row.max())), unit)
        for name, unit in file.units.items()
        for row in [file.problem.costs[name]]
    ]
    groups = [(name, str(len(group.members))) for name, group in file.groups.items()]
    limits = []
    for (limit, line, per, bound, _), one in zip(file.limits, found["limits"], strict=True):
        cells, note = [f"{bound:.6g}", f"per {per}"], ""
        if one["lowest"] is not None:
            cells += [
                f"{end:.4g}" for end in (one["lowest"], one["highest"], *(one["distinct"] or ()))
            ]
            upper = limit.sign == UPPER
            if bound >= one["highest"] if upper else bound <= one["lowest"]:
                note = "implied by the others"
        cells += [""] * (6 - len(cells)) + ["" if line is None else str(line)]
        limits.append((f"{limit.name} {limit.side}{limit.counted_words}", *cells, note))
    checks = [
        (
            policy,
            "yes" if one["applies"] else "no",
            "" if one["margin"] is None else f"{one['margin']:.3g}",
            "" if one["shortest_period"] is None else f"{one['shortest_period']:,}",
            one["reason"],
        )
        for policy, one in found["policies"].items()
    ]
    return [
        [("cost", "lowest", "mean", "highest", "unit"), *costs],
        [("group", "experts"), *groups],
        [("limit", "bound", "", "lowest", "highest", "distinct from", "to", "line", ""), *limits],
        [("policy", "can run", "margin", "shortest period", ""), *checks],
    ]


def describe_limits(file: ProblemFile) -> list[str]:
    """Which limits can be kept together, and by which panels."""
    problem = file.problem
    if not file.limits:
        return ["Nothing is limited."]
    panels = f"panels of {min(problem.draws, problem.size)} different experts"
    full, surrogate = (
        ", ".join(one.located for one in limits_in_conflict(file, conflict))
        for conflict in (problem.full_conflict, problem.surrogate_conflict)
    )
    lines = [
        "All limits can be kept together.",
        "lowest, highest: the range of the average while the other limits are kept; distinct "
        f"from, to: the same for {panels}.",
        f"{panels.capitalize()} {f'cannot keep {full}' if full else 'can keep them'}.",
    ]
    if problem.min_draws is not None and problem.min_draws < problem.draws:
        sizes = format_sizes(problem.min_draws, problem.draws)
        lines.append(f"{policies.NoisyOr.name} may ask {sizes}, and so keep them at less cost.")
    if not all(limit.averages_all for limit in problem.limits):
        return lines
    verdict = (
        f"infeasible, because of {surrogate}: omd may miss them"
        if surrogate
        else "feasible: omd can keep them"
    )
    return [*lines, f"The paper's surrogate of the limits is {verdict}."]


def describe_promises(file: ProblemFile, found: dict[str, Any]) -> list[str]:
    """Describe what policies with a guard promise for which limits."""
    name = policies.NoisyOr.name
    limits = list(zip(file.limits, found["limits"], strict=True))
    lines = list_promises(limits, "promise")
    if found["policies"][name]["applies"]:
        other = [pair for pair in limits if pair[1]["noisy_or_promise"] != pair[1]["promise"]]
        lines += [f"With {name}, {line}" for line in list_promises(other, "noisy_or_promise")]
    return lines


def list_promises(limits: list[tuple[WrittenLimit, dict[str, Any]]], key: str) -> list[str]:
    """List a sentence for each promise, after the limits that have it."""
    by_sentence: dict[str, list[str]] = {}
    for (limit, *_), data in limits:
        words = f"{limit.name} {limit.side}{limit.words.removeprefix(limit.name)}"
        sentence = describe_promise(data[key], limit.per or "period", not limit.is_derived)
        by_sentence.setdefault(sentence, []).append(words)
    return [f"{join_words(names, 'and')}: {text}." for text, names in by_sentence.items()]


def describe_looser_limits(found: dict[str, Any]) -> list[str]:
    """The bounds or the period that would let policies with full panels run, if they cannot."""
    distinct = found["policies"][policies.Distinct.name]
    counted_apart = any("scope" in one or "where" in one for one in found["limits"])
    if distinct["applies"] or counted_apart:
        return []
    shortest = distinct["shortest_period"]
    ways = [] if shortest is None else [f"period: {shortest}"]
    ways += map(format_looser_limit, found["looser"])
    both = policies.Distinct.name
    if not found["policies"][policies.NoisyOr.name]["applies"]:
        both += f" and {policies.NoisyOr.name}"
    if not ways:
        return [f"No change of a single bound lets {both} run: {distinct['reason']}."]
    return [f"{both} can run with {join_words(ways, 'or')}."]


def describe_auto(file: ProblemFile, found: dict[str, Any]) -> list[str]:
    """What `auto` selects, and what to know about the noisy-or policy."""
    names = [
        f"{name}{' (which cannot run, see above)' * bool(found['policies'][name]['reason'])}"
        for name in found["auto"].values()
    ]
    first, second = found["auto"]
    line = f"{first}, the default, selects {names[0]}"
    if names[0] != names[1]:
        line += f"; {second}, for logs that nobody will evaluate, selects {names[1]}"
    judged = policies.resolve_policy("auto", file.problem, "members").name
    if judged != found["auto"][first]:
        line += f"; with scores of members or winners, {first} selects {judged}"
    lines, name = [f"{line}."], policies.NoisyOr.name
    posterior = found["policies"][name]
    if posterior["applies"]:
        lines.append(
            f"{name} records propensities only in rounds that it sets aside for exploration "
            f"({name}:explore=0.02); its log can be evaluated with these."
        )
    if posterior["memory"] >= REPORTED_MEMORY_BYTES:
        lines.append(
            f"The posterior of {name} over pairs of {file.problem.size:,} experts takes "
            f"{posterior['memory'] / 2**20:,.0f} MiB in {max(1, len(file.contexts)):,} contexts."
        )
    return lines


def describe_when_kept(problem: Problem) -> str:
    """Say when the limits of a problem hold: in windows, and at the end of periods."""
    default = "" if problem.period else " (the default)"
    held = f"at the end of every {get_period(problem, None):,} requests{default}"
    if not problem.calendars:
        return held
    others = any(limit.per is None for limit in problem.limits)
    return "in their windows of the calendar" + f", the others {held}" * others


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
