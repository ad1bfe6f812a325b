"""What the limits of a file allow and which policies can keep them, for `bylot problem check`."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from bylot import policies
from bylot._text import format_number, format_percent, format_sizes, join_words
from bylot.errors import InfeasibleProblemFile, ProblemError
from bylot.limits import binding
from bylot.limits import rows as limit_rows
from bylot.limits.schedule import find_shortest_period
from bylot.policies import noisy_or
from bylot.policies.registry import check_panel_size
from bylot.problem import Conflict, Problem
from bylot.problem.feasibility import find_average_range, full_panels_polytope, round_outward
from bylot.problem.limits import UPPER
from bylot.problem_files.problem_file import ProblemFile
from bylot.problem_files.written_limit import REQUESTS_TOLERANCE, WrittenLimit, format_entry

MARGINS_TRIED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of a proposed bound beyond a feasible one
PROPOSED_DIGITS = 3  # significant digits of a proposed bound


def check_problem(file: ProblemFile) -> dict[str, Any]:
    problem = file.problem
    with file.document.locate_errors("draws"):
        check_panel_size(policies.Auto(), problem)
    distinct, noisy = check_full_panels(problem), check_noisy_or(file)
    applies = noisy["applies"] if problem.needs_labels else distinct["applies"]
    contexts = f",contexts={len(file.contexts)}" if len(file.contexts) > 1 else ""
    auto = {
        spec: policies.policy_to_data(policies.resolve_policy(spec, problem))["name"]
        for spec in ("auto", f"auto:propensities=false{contexts}")
    }
    looser = list(map(written_limit_data, () if applies else find_looser_limits(file)))
    together = [] if applies or looser else find_joint_limits(file)
    promises = find_limit_promises(problem, auto["auto"])
    conflicts = {"full_panels": problem.full_conflict, "surrogate": problem.surrogate_conflict}
    found = {
        "file": str(file.path),
        "experts_file": None if file.csv is None else str(file.csv),
        "experts": list(problem.experts),
        "draws": problem.draws,
        "min_draws": problem.min_draws,
        "floor": problem.floor,
        "period": problem.period,
        "traffic": problem.traffic,
        "rewards": list(file.rewards),
        "contexts": dict(file.contexts),
        "costs": {
            name: {"unit": unit, "least": float(row.min()), "most": float(row.max())}
            for name, unit in file.units.items()
            for row in [problem.costs[name]]
        },
        "groups": {name: list(group.members) for name, group in file.groups.items()},
        "limits": [
            {**find_limit_ranges(written, problem), **promised}
            for written, promised in zip(file.limits, promises, strict=True)
        ],
        "feasible": True,
        **{
            name: {
                "feasible": conflict is None,
                "conflict": list(map(written_limit_data, limits_in_conflict(file, conflict))),
            }
            for name, conflict in conflicts.items()
        },
        "policies": {
            policies.Distinct.name: distinct,
            policies.NoisyOr.name: noisy,
            policies.Tangent.name: check_tangent(problem),
        },
        "looser": looser,
        "looser_together": list(map(written_limit_data, together)),
        "auto": auto,
    }
    return {"summary": list_check_numbers(file, found), **found}


def find_limit_promises(problem: Problem, default: str) -> list[dict[str, Any]]:
    """What the default policy promises for each limit, and `noisy-or`, whose panels may be smaller.

    What is certain depends on the panels that a policy may fall back on.
    """
    fewest = {policies.Tangent.name: 1, policies.NoisyOr.name: problem.min_members}
    sizes = fewest.get(default, min(problem.draws, problem.size)), problem.min_members
    found = {size: binding.find_promises(problem, size) for size in set(sizes)}
    return [
        {"promise": one, "noisy_or_promise": two}
        for one, two in zip(found[sizes[0]], found[sizes[1]], strict=True)
    ]


def failure_data(path: str, error: ProblemError) -> dict[str, Any]:
    failed: dict[str, Any] = {"file": path, "feasible": None, "error": str(error)}
    if isinstance(error, InfeasibleProblemFile):
        pairs = zip(error.limits, error.lines, strict=True)
        conflict = [{"limit": one.name, one.side: one.bound, "line": line} for one, line in pairs]
        failed |= {"feasible": False, "conflict": conflict, "draws": error.draws}
    return failed


def written_limit_data(written: WrittenLimit) -> dict[str, Any]:
    """A limit as the file writes it, and per request, as far as the traffic is known."""
    limit = written.limit
    is_known = written.requests is not None or not limit.is_total
    return {
        "cost" if isinstance(limit.cost, str) else "group": limit.name,
        limit.side: written.written,
        "per": written.per,
        "per_request": limit.bound / (written.requests or 1.0) if is_known else None,
        **{name: x for name, x in limit.window_data.items() if name in ("scope", "where")},
        "line": written.line,
    }


def find_limit_ranges(written: WrittenLimit, problem: Problem) -> dict[str, Any]:
    """What the average under a limit can be while the others are kept, in the unit of the file.

    `distinct` is the same for panels of M different experts; None if these cannot keep the others.
    Of a budget of the calendar, all of them are None if the traffic is not known.
    """
    ends: dict[str, Any] = {"lowest": None, "highest": None, "distinct": None}
    unit = written.unit(problem.draws)
    if not math.isnan(unit):
        full = find_average_range(problem, full_panels_polytope(problem), written.limit)
        lowest, highest = problem.range_of(written.limit)
        ends = {
            "lowest": lowest / unit,
            "highest": highest / unit,
            "distinct": full and [x / unit for x in full],
        }
    return {**written_limit_data(written), "window": find_window_data(written, problem), **ends}


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


def limits_in_conflict(file: ProblemFile, conflict: Conflict | None) -> list[WrittenLimit]:
    keys = {limit.key for limit in conflict.limits} if conflict else set()
    return [one for one in file.limits if one.limit.key in keys]


def find_looser_limits(file: ProblemFile) -> Iterator[WrittenLimit]:
    """Each limit with the nearest tried bound that lets `distinct` run, the others unchanged; with
    limits of some contexts or of each tenant `noisy-or`, the default there.
    """
    problem = file.problem
    check = check_panels if problem.needs_labels else check_full_panels
    for limit in file.limits:
        full = find_average_range(problem, full_panels_polytope(problem), limit.limit)
        if full is None or limit.limit.is_total:  # requests are refused before it is exceeded
            continue
        sign = limit.limit.sign
        nearest = full[0 if sign == UPPER else 1] / limit.unit(problem.draws)
        for margin in MARGINS_TRIED:
            bound = round_outward(nearest * (1 - sign * margin), sign, PROPOSED_DIGITS)
            looser = limit.at(bound, problem.draws)
            if looser is None or sign * (looser.written - limit.written) >= 0:
                continue  # not looser than the bound of the file
            limits = [looser.limit if one is limit.limit else one for one in problem.limits]
            if check(problem.replace(limits=limits))["applies"]:
                yield looser
                break


def find_joint_limits(file: ProblemFile) -> list[WrittenLimit]:
    """Limits with bounds that let the same policy run if all are changed; none if that is not
    enough. These are the limits that no panel of the smallest number of members keeps.
    """
    problem, fewest, changed = file.problem, file.problem.min_members, {}
    check = check_panels if problem.needs_labels else check_full_panels
    for written, row in zip(file.limits, problem.rows, strict=True):
        limit, costs = written.limit, np.sort(row)
        panel = costs[:fewest] if limit.sign == UPPER else costs[-problem.draws :]
        nearest = float(panel.sum())
        if limit.is_total or limit.sign * (nearest - limit.bound) >= 0:
            continue
        bound = nearest / written.unit(problem.draws) * (1 - limit.sign * MARGINS_TRIED[0])
        looser = written.at(round_outward(bound, limit.sign, PROPOSED_DIGITS), problem.draws)
        if looser is not None:
            changed[limit.key] = looser
    limits = [changed[one.key].limit if one.key in changed else one for one in problem.limits]
    applies = changed and check(problem.replace(limits=limits))["applies"]
    return list(changed.values()) if applies else []


def policy_check_data(
    reason: str, margin: float | None = None, shortest: float = math.inf
) -> dict[str, Any]:
    """Whether a policy can run, or why not; `memory` is that of its posterior in bytes.

    By the `margin` all limits could be tightened (Slater); `shortest` is the shortest period at
    whose end it guarantees the limits.
    """
    return {
        "applies": not reason,
        "reason": reason,
        "margin": margin,
        "shortest_period": None if shortest == math.inf else shortest,
        "memory": 0,
    }


def check_full_panels(problem: Problem) -> dict[str, Any]:
    """Check whether panels of M different experts keep the limits."""
    if problem.full_conflict is None:
        return check_guarded(problem, problem.draws)
    return policy_check_data(f"panels of {problem.draws} different experts cannot keep the limits")


def check_guarded(problem: Problem, fewest: int) -> dict[str, Any]:
    """Check a policy with a guard, whose panels have so many members or more."""
    rows, period = limit_rows.make_constraint_rows(problem), binding.get_period(problem, None)
    space = binding.find_common_point(problem, fewest, rows)
    judged = [j for j, limit in enumerate(problem.limits) if limit.averages_all]
    rows = limit_rows.ConstraintRows(rows.A[judged], rows.b[judged])
    shortest, reason = find_shortest_period(rows, space.quota), ""
    if shortest == math.inf:
        reason = "the limits leave no margin for a guarantee"
    elif shortest > period:
        reason = f"a period of {period:,} requests is too short"
    return policy_check_data(reason, max(0.0, space.margin), shortest)


def check_tangent(problem: Problem) -> dict[str, Any]:
    """Check the policy that draws with replacement under a guard."""
    fewest = problem.min_draws or 1
    if fewest > 1:
        return policy_check_data(f"its panels may have fewer than {fewest} members")
    return check_guarded(problem, fewest)


def check_noisy_or(file: ProblemFile) -> dict[str, Any]:
    """Check the policy with a large posterior: the guard is that of `distinct`, unless panels may
    have fewer members.
    """
    memory = noisy_or.count_posterior_bytes(max(1, len(file.contexts)), file.problem.size)
    found = check_panels(file.problem) | {"memory": memory}
    if memory > noisy_or.MAX_POSTERIOR_BYTES and found["applies"]:
        most = f"{noisy_or.MAX_POSTERIOR_BYTES / 2**30:g} GiB"
        found |= {"applies": False, "reason": f"its posterior would take more than {most}"}
    return found


def check_panels(problem: Problem) -> dict[str, Any]:
    """Check whether panels of as many members as are allowed keep the limits."""
    if problem.min_draws is not None:
        return check_guarded(problem, problem.min_members)
    return check_full_panels(problem)


def list_check_numbers(file: ProblemFile, found: dict[str, Any]) -> dict[str, str]:
    """Limits, the policies that can keep them, the margin, and the shortest period."""
    count, checks, name = len(file.limits), found["policies"], found["auto"]["auto"]
    problem, default = file.problem, checks[name]
    runs = [policy for policy, one in checks.items() if one["applies"]]
    kept = "all can be kept together" if count > 1 else "it can be kept"
    if not runs:
        kept = describe_conflict(file, found)
    elif refused := describe_refused(file, found):
        kept = f"{kept} by refusing requests: {refused}"
    names = f" ({', '.join(runs)})" if runs else ""
    numbers = {
        "limits": f"{count} on panels of "
        f"{format_sizes(problem.min_draws or problem.draws, problem.draws)} of {problem.size} "
        f"experts: {kept if count else 'nothing is limited'}",
        "policies": f"{len(runs)} of {len(checks)} checked can run{names}; the "
        f"default is {name}{'' if name in runs else ', which cannot'}",
    }
    if default["margin"] is None:
        return numbers
    bounds = [one["per_request"] for one in found["limits"]]  # unknown, or too little for all
    if count and problem.bounds.tolist() == bounds:
        at = "" if problem.traffic is None else ", at this traffic"
        numbers["margin"] = (
            f"{format_percent(default['margin'])}: all limits could be this much tighter at "
            f"once and {name} could keep them{at * bool(problem.calendars)}"
        )
    if any(one.limit.per is None for one in file.limits):
        shortest, period = default["shortest_period"], binding.get_period(problem, None)
        numbers["shortest period"] = (
            "none: no period can be guaranteed"
            if shortest is None
            else f"{shortest:,} request{'s' * (shortest > 1)}: at the end of as many, {name} can "
            f"guarantee the limits; the period is {period:,}"
            f"{'' if problem.period else ', the default'}"
        )
    return numbers


def describe_conflict(file: ProblemFile, found: dict[str, Any]) -> str:
    """Why no policy can run: the limits in conflict, and bounds that are enough."""
    looser, together = found["looser"], found["looser_together"]
    lines = {one["line"] for one in looser or together}
    limits = [one for one in file.limits if one.line in lines]
    limits = limits or limits_in_conflict(file, file.problem.full_conflict)
    words = join_words((one.located for one in limits), "and") or "them"
    ways = join_words(map(format_looser_limit, looser or together), "or" if looser else "and")
    reason = found["policies"][found["auto"]["auto"]]["reason"]
    return f"no policy that was checked can keep {words}; {f'write {ways}' if ways else reason}"


def format_looser_limit(looser: dict[str, Any]) -> str:
    """A bound to write, and where: "at_most: 2.0 in line 15"."""
    side = "at_most" if "at_most" in looser else "at_least"
    return format_entry(looser.get("cost") or looser["group"], side, looser[side], looser["line"])


def describe_refused(file: ProblemFile, found: dict[str, Any]) -> str:
    """Which budgets of the calendar refuse requests for certain; empty if none does."""
    parts = []
    for written, one in zip(file.limits, found["limits"], strict=True):
        window, limit = one["window"] or {}, written.limit
        most, requests = window.get("most_requests"), window.get("requests")
        place = "" if written.line is None else f" (line {written.line})"
        if most == 0:
            whose = " of a tenant without a bound of its own" * bool(limit.scope)
            whose += f" in {', '.join(limit.where)}" * bool(limit.where)
            cheapest = format_number(window["cheapest_panel"])
            parts.append(
                f'every request{whose}, as "{written.words}"{place} is less than the cheapest '
                f"panel costs, {cheapest}"
            )
        elif most is not None and requests is not None and requests > most:
            part = f"at least {requests - most:,.0f} of {format_number(requests)}"
            parts.append(f'{part} in an average {one["per"]}, under "{written.words}"{place}')
    return "; ".join(parts)
