"""What was found of a problem file, for people and for programs."""

import math
from typing import Any

from bylot._text import format_table, join_words
from bylot.errors import InfeasibleProblemFile, ProblemError
from bylot.policies.guard import get_period
from bylot.problem import Conflict
from bylot.problem_files.check import ProblemCheck
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile

REPORTED_MEMORY_BYTES = 2**20  # bytes of beliefs from which on they are told
FULL_PANEL_COLUMNS = ("distinct from", "to")  # columns
CHECK_LEGEND = (
    "margin: by which fraction all limits could be tightened at once; the smaller it is, the more "
    "panels the guard has to replace. shortest period: the fewest requests at whose end the policy "
    "can promise the limits."
)


def render_check(found: ProblemCheck) -> str:
    """For people."""
    parts = [check_heading(found.file), *check_tables(found), check_verdicts(found)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def check_heading(file: ProblemFile) -> list[str]:
    """What the file is about, in a line or a few."""
    problem = file.problem
    source = f" (from {file.csv})" if file.csv else ""
    low, high = file.rewards
    lines = [
        f"{file.path}: {problem.size} experts{source}, {problem.draws} drawn for each request",
        f"rewards from {low:g} to {high:g}; limits to hold at the end of every "
        f"{get_period(problem, None):,} requests{'' if problem.period else ' (the default)'}",
    ]
    if file.contexts:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in file.contexts.items())
        lines.append(f"contexts, and how often each comes: {shares}")
    return lines


def check_tables(found: ProblemCheck) -> list[list[str]]:
    """Costs, groups, limits and policies."""
    file, problem = found.file, found.file.problem
    costs = [
        (name, f"{row.min():.4g}", f"{row.mean():.4g}", f"{row.max():.4g}", unit)
        for name, unit in file.units.items()
        for row in [problem.costs[name]]
    ]
    groups = [(name, str(len(group.members))) for name, group in file.groups.items()]
    limits = [
        (
            f"{reach.promise.limit.name} {reach.promise.limit.side}",
            f"{reach.promise.written:.6g}",
            f"per {reach.promise.per}",
            f"{reach.lowest:.4g}",
            f"{reach.highest:.4g}",
            *((f"{end:.4g}" for end in reach.full) if reach.full else ("", "")),
            str(reach.promise.place.line),
            "kept by the others" if reach.idle else "",
        )
        for reach in found.reaches
    ]
    policies = [
        (
            one.policy,
            "no" if one.reason else "yes",
            "" if one.margin is None else f"{one.margin:.3g}",
            "" if one.shortest == math.inf else f"{one.shortest:,}",
            one.reason,
        )
        for one in found.footings
    ]
    made: list[list[tuple[str, ...]]] = [
        [("cost", "least", "mean", "most", "unit"), *costs],
        [("group", "experts"), *groups],
        [("limit", "bound", "", "lowest", "highest", *FULL_PANEL_COLUMNS, "line", ""), *limits],
        [("policy", "can be taken", "margin", "shortest period", ""), *policies],
    ]
    return [format_table(rows) for rows in made if len(rows) > 1]


def check_verdicts(found: ProblemCheck) -> list[str]:
    """What it comes to."""
    members = min(found.file.problem.draws, found.file.problem.size)
    lines = ["All limits can be kept together."] if found.reaches else ["Nothing is limited."]
    if found.reaches:
        lines.append(
            "lowest, highest: what an average can be while the other limits are kept; distinct "
            f"from, to: if every panel has {members} different experts."
        )
    if found.full is None:
        lines.append(f"Panels of {members} different experts can keep them.")
    else:
        lines.append(
            f"Panels of {members} different experts cannot keep {format_conflict(found, found.full)}."
        )
    if found.surrogate is None:
        lines.append("The paper's stand-in for the limits is not empty: omd can keep it.")
    else:
        lines.append(
            f"The paper's stand-in for the limits is empty, by {format_conflict(found, found.surrogate)}: "
            "omd may miss them."
        )
    return [
        *lines,
        *describe_looser_limits(found),
        *describe_auto(found),
        *([CHECK_LEGEND] if found.reaches else []),
    ]


def describe_auto(found: ProblemCheck) -> list[str]:
    """What `auto` comes to, and what `noisy-or` is to be taken with."""
    (usual, first), (other, second) = found.auto.items()
    line = f"{usual}, the default, takes {first}{note_refusal(found, first)}"
    if second != first:
        line += f"; {other}, if nobody will want to evaluate its log, takes {second}"
        line += note_refusal(found, second)
    lines = [f"{line}."]
    (panel,) = [one for one in found.footings if one.policy == "noisy-or"]
    if not panel.reason:
        lines.append(
            "panel tells the chance of a panel only in rounds that it sets aside "
            "(noisy-or:explore=0.02); its log can be evaluated by these."
        )
    if panel.memory >= REPORTED_MEMORY_BYTES:
        lines.append(
            f"What panel believes of pairs of {found.file.problem.size:,} experts takes "
            f"{panel.memory / 2**20:,.0f} MiB in {max(1, len(found.file.contexts)):,} contexts."
        )
    return lines


def note_refusal(found: ProblemCheck, policy: str) -> str:
    """A reminder of what the table says, where the policy cannot be taken."""
    reasons = {one.policy: one.reason for one in found.footings}
    return " (which has no room, see above)" if reasons[policy] else ""


def describe_looser_limits(found: ProblemCheck) -> list[str]:
    """What would let policies that ask full panels be taken, if they cannot be."""
    if not found.footings[0].reason:
        return []
    ways = [f"{one.limit.side}: {one.written!r} in line {one.place.line}" for one in found.wider]
    if not ways:
        return ["No change of a single bound makes room for distinct and panel."]
    return [f"distinct and panel have room with {join_words(ways, 'or')}."]


def format_conflict(found: ProblemCheck, conflict: Conflict) -> str:
    """Limits with their lines."""
    return ", ".join(
        f"{promise} (line {promise.place.line})" for promise in limits_in_conflict(found, conflict)
    )


def limits_in_conflict(found: ProblemCheck, conflict: Conflict) -> list[WrittenLimit]:
    """The promises behind limits."""
    keys = {limit.key for limit in conflict.limits}
    return [promise for promise in found.file.promises if promise.limit.key in keys]


def check_data(found: ProblemCheck) -> dict[str, Any]:
    """For programs: what `--json` prints."""
    file, problem = found.file, found.file.problem
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
            name: {"unit": unit, "least": float(row.min()), "most": float(row.max())}
            for name, unit in file.units.items()
            for row in [problem.costs[name]]
        },
        "groups": {name: list(group.members) for name, group in file.groups.items()},
        "limits": [
            {
                **written_limit_data(reach.promise),
                "lowest": reach.lowest,
                "highest": reach.highest,
                "distinct": reach.full and list(reach.full),
            }
            for reach in found.reaches
        ],
        "feasible": True,
        "full_panels": conflict_data(found, found.full),
        "surrogate": conflict_data(found, found.surrogate),
        "wider": list(map(written_limit_data, found.wider)),
        "policies": {
            one.policy: {
                "applies": not one.reason,
                "reason": one.reason,
                "margin": one.margin,
                "shortest_period": None if one.shortest == math.inf else one.shortest,
                "memory": one.memory,
            }
            for one in found.footings
        },
        "auto": dict(found.auto),
    }


def written_limit_data(promise: WrittenLimit) -> dict[str, Any]:
    """A limit, as the file has it and per request."""
    limit = promise.limit
    kind = "cost" if isinstance(limit.cost, str) else "group"
    return {
        kind: limit.name,
        limit.side: promise.written,
        "per": promise.per,
        "per_request": limit.bound,
        "line": promise.place.line,
    }


def conflict_data(found: ProblemCheck, conflict: Conflict | None) -> dict[str, Any]:
    """Whether limits can be kept in some way and, if not, which are in the way."""
    names = (
        []
        if conflict is None
        else list(map(written_limit_data, limits_in_conflict(found, conflict)))
    )
    return {"feasible": conflict is None, "conflict": names}


def failure_data(path: str, error: ProblemError) -> dict[str, Any]:
    """What `--json` prints of a file that cannot be used."""
    failed: dict[str, Any] = {"file": path, "feasible": None, "error": str(error)}
    if isinstance(error, InfeasibleProblemFile):
        pairs = zip(error.conflict, error.lines, strict=True)
        failed["feasible"] = False
        failed["conflict"] = [
            {"limit": limit.name, limit.side: limit.bound, "line": line} for limit, line in pairs
        ]
        failed["draws"] = error.draws
    return failed
