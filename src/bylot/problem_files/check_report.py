"""The output of `bylot problem check`, as text and as data for JSON."""

import math
from typing import Any

from bylot._text import format_table, join_words
from bylot.errors import InfeasibleProblemFile, ProblemError
from bylot.policies.guard import get_period
from bylot.problem import Conflict
from bylot.problem_files.check import NOISY_OR, ProblemCheck
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile

REPORTED_MEMORY_BYTES = 2**20
CHECK_LEGEND = (
    "margin: the fraction by which all limits could be tightened at once; the smaller it is, the "
    "more panels the guard replaces. shortest period: the fewest requests at whose end the policy "
    "guarantees the limits."
)


def render_check(check: ProblemCheck) -> str:
    """The text for people."""
    parts = [describe_file(check.file), *make_check_tables(check), describe_check(check)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def describe_file(file: ProblemFile) -> list[str]:
    """What the file contains, in a few lines."""
    problem, (low, high) = file.problem, file.rewards
    source = f" (from {file.csv})" if file.csv else ""
    default = "" if problem.period else " (the default)"
    lines = [
        f"{file.path}: {problem.size} experts{source}, {problem.draws} drawn for each request",
        f"rewards from {low:g} to {high:g}; the limits hold at the end of every "
        f"{get_period(problem, None):,} requests{default}",
    ]
    if file.contexts:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in file.contexts.items())
        lines.append(f"contexts and their shares of the requests: {shares}")
    return lines


def make_check_tables(check: ProblemCheck) -> list[list[str]]:
    """Tables of costs, groups, limits and policies."""
    file, problem = check.file, check.file.problem
    rows = {name: problem.costs[name] for name in file.units}
    costs = [
        (name, *(f"{one:.4g}" for one in (row.min(), row.mean(), row.max())), file.units[name])
        for name, row in rows.items()
    ]
    groups = [(name, str(len(group.members))) for name, group in file.groups.items()]
    limits = [
        (
            f"{one.limit.limit.name} {one.limit.limit.side}",
            f"{one.limit.written:.6g}",
            f"per {one.limit.per}",
            *(f"{end:.4g}" for end in (one.lowest, one.highest)),
            *((f"{end:.4g}" for end in one.full) if one.full else ("", "")),
            "" if one.limit.line is None else str(one.limit.line),
            "implied by the others" if one.redundant else "",
        )
        for one in check.ranges
    ]
    policies = [
        (
            one.policy,
            "no" if one.reason else "yes",
            "" if one.margin is None else f"{one.margin:.3g}",
            "" if one.shortest == math.inf else f"{one.shortest:,}",
            one.reason,
        )
        for one in check.policies
    ]
    ends = ("lowest", "highest", "distinct from", "to")
    tables: list[list[tuple[str, ...]]] = [
        [("cost", "lowest", "mean", "highest", "unit"), *costs],
        [("group", "experts"), *groups],
        [("limit", "bound", "", *ends, "line", ""), *limits],
        [("policy", "can run", "margin", "shortest period", ""), *policies],
    ]
    return [format_table(table) for table in tables if len(table) > 1]


def describe_check(check: ProblemCheck) -> list[str]:
    """The conclusions."""
    panels = f"panels of {min(check.file.problem.draws, check.file.problem.size)} different experts"
    lines = ["All limits can be kept together."] if check.ranges else ["Nothing is limited."]
    if check.ranges:
        lines.append(
            "lowest, highest: the range of the average while the other limits are kept; distinct "
            f"from, to: the same for {panels}."
        )
    if check.full is None:
        lines.append(f"{panels.capitalize()} can keep them.")
    else:
        lines.append(f"{panels.capitalize()} cannot keep {format_conflict(check, check.full)}.")
    if check.surrogate is None:
        lines.append("The paper's surrogate of the limits is feasible: omd can keep them.")
    else:
        lines.append(
            "The paper's surrogate of the limits is infeasible, because of "
            f"{format_conflict(check, check.surrogate)}: omd may miss them."
        )
    legend = [CHECK_LEGEND] if check.ranges else []
    return [*lines, *describe_looser_limits(check), *describe_auto(check), *legend]


def describe_looser_limits(check: ProblemCheck) -> list[str]:
    """The bounds that would let the policies with full panels run, if they cannot."""
    if not check.policies[0].reason:
        return []
    ways = [
        f"{one.limit.side}: {one.written!r} "
        f"{f'for {one.limit.name}' if one.line is None else f'in line {one.line}'}"
        for one in check.looser
    ]
    if not ways:
        return [f"No change of a single bound lets distinct and {NOISY_OR} run."]
    return [f"distinct and {NOISY_OR} can run with {join_words(ways, 'or')}."]


def describe_auto(check: ProblemCheck) -> list[str]:
    """What `auto` selects, and what to know about the noisy-or policy."""
    reasons = {one.policy: one.reason for one in check.policies}
    names = [
        f"{name}{' (which cannot run, see above)' if reasons[name] else ''}"
        for name in check.auto.values()
    ]
    first, second = check.auto
    line = f"{first}, the default, selects {names[0]}"
    if check.auto[first] != check.auto[second]:
        line += f"; {second}, for logs that nobody will evaluate, selects {names[1]}"
    lines = [f"{line}."]
    (noisy_or,) = [one for one in check.policies if one.policy == NOISY_OR]
    if not noisy_or.reason:
        lines.append(
            f"{NOISY_OR} records propensities only in rounds that it sets aside for exploration "
            f"({NOISY_OR}:explore=0.02); its log can be evaluated with these."
        )
    if noisy_or.memory >= REPORTED_MEMORY_BYTES:
        lines.append(
            f"The posterior of {NOISY_OR} over pairs of {check.file.problem.size:,} experts takes "
            f"{noisy_or.memory / 2**20:,.0f} MiB in {max(1, len(check.file.contexts)):,} contexts."
        )
    return lines


def format_conflict(check: ProblemCheck, conflict: Conflict) -> str:
    """The limits of a conflict with their lines."""
    return ", ".join(one.located for one in limits_in_conflict(check, conflict))


def limits_in_conflict(check: ProblemCheck, conflict: Conflict | None) -> list[WrittenLimit]:
    """The limits of a conflict as the file writes them."""
    keys = {limit.key for limit in conflict.limits} if conflict else set()
    return [one for one in check.file.limits if one.limit.key in keys]


def check_data(check: ProblemCheck) -> dict[str, Any]:
    """The data of `--json`."""
    file, problem = check.file, check.file.problem
    rows = {name: problem.costs[name] for name in file.units}
    conflicts = {"full_panels": check.full, "surrogate": check.surrogate}
    return {
        "file": str(file.path),
        "experts_file": None if file.csv is None else str(file.csv),
        "experts": list(problem.experts),
        "draws": problem.draws,
        "floor": problem.floor,
        "period": problem.period,
        "rewards": list(file.rewards),
        "contexts": dict(file.contexts),
        "costs": {
            name: {"unit": file.units[name], "least": float(row.min()), "most": float(row.max())}
            for name, row in rows.items()
        },
        "groups": {name: list(group.members) for name, group in file.groups.items()},
        "limits": [
            {
                **written_limit_data(one.limit),
                "lowest": one.lowest,
                "highest": one.highest,
                "distinct": one.full and list(one.full),
            }
            for one in check.ranges
        ],
        "feasible": True,
        **{
            name: {
                "feasible": conflict is None,
                "conflict": list(map(written_limit_data, limits_in_conflict(check, conflict))),
            }
            for name, conflict in conflicts.items()
        },
        "looser": list(map(written_limit_data, check.looser)),
        "policies": {
            one.policy: {
                "applies": not one.reason,
                "reason": one.reason,
                "margin": one.margin,
                "shortest_period": None if one.shortest == math.inf else one.shortest,
                "memory": one.memory,
            }
            for one in check.policies
        },
        "auto": dict(check.auto),
    }


def written_limit_data(written: WrittenLimit) -> dict[str, Any]:
    """A limit as the file writes it, and per request."""
    limit = written.limit
    return {
        "cost" if isinstance(limit.cost, str) else "group": limit.name,
        limit.side: written.written,
        "per": written.per,
        "per_request": limit.bound,
        "line": written.line,
    }


def failure_data(path: str, error: ProblemError) -> dict[str, Any]:
    """The data of `--json` for an invalid file."""
    failed: dict[str, Any] = {"file": path, "feasible": None, "error": str(error)}
    if isinstance(error, InfeasibleProblemFile):
        pairs = zip(error.conflict, error.lines, strict=True)
        conflict = [{"limit": one.name, one.side: one.bound, "line": line} for one, line in pairs]
        failed |= {"feasible": False, "conflict": conflict, "draws": error.draws}
    return failed
