"""The report of a what-if run: what it says, in which order."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bylot._text import format_number, format_percent, format_sizes, join_words
from bylot.policies import NoisyOr, Policy, summarize_policy
from bylot.problem.instants import FULL_DAY_US
from bylot.problem.window_bounds import has_known_optimum
from bylot.reports import (
    Banner,
    Block,
    Bullets,
    Heading,
    Paragraph,
    TableBlock,
    make_figure,
    make_table,
)
from bylot.scenario import describe_call_costs
from bylot.whatif.figures import MAX_EXPERT_ROWS, MAX_LIMIT_PANELS
from bylot.whatif.plan import DISTRIBUTION_KINDS, WhatifPlan
from bylot.whatif.results import PolicyResult, WhatifResults

FigurePaths = Mapping[str, list[Path]]

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
REFERENCE_COLUMNS = {"most": "any policy", "set": "best fixed panel", "equal": "equal shares"}


def whatif_title(results: WhatifResults) -> str:
    prefix = "SYNTHETIC SCENARIO: " if results.plan.scenario.synthetic else ""
    path = results.plan.file.path.resolve()
    return f"{prefix}What if {path.parent.name}/{path.name} went live?"


def build_whatif_report(
    results: WhatifResults, sentences: Sequence[str], paths: FigurePaths
) -> list[Block]:
    return [
        Heading(whatif_title(results), 1),
        *build_banners(results),
        Heading("What to do"),
        Paragraph(sentences[0], lead=True),
        *([Bullets(sentences[1:])] if sentences[1:] else []),
        Heading("What was simulated"),
        Bullets([*describe_setup(results)]),
        *build_reward_section(results, paths),
        *build_limits_section(results, paths),
        *build_prices_section(results),
        *build_experts_section(results, paths),
        *build_sweep_section(results, paths),
        Heading("How to read this report"),
        Bullets(TEXTS["notes"]),
    ]


def build_banners(results: WhatifResults) -> Iterator[Block]:
    plan = results.plan
    yield from map(Banner, plan.describe_tenants())
    if plan.scenario.synthetic:
        yield Banner(plan.scenario.description)
    if results.stopped:
        yield Banner("This run was interrupted; the report covers the finished part.")
    if plan.rounds != plan.complete:
        yield Banner(describe_partial_period(plan))


def describe_partial_period(plan: WhatifPlan) -> str:
    if not plan.complete:
        return (
            f"{plan.rounds:,} requests are fewer than a period of {plan.period:,}, so no limit"
            f"{' on an average' * plan.has_windows} can be judged. Use --rounds {plan.period} or "
            "more."
        )
    if plan.has_windows:  # requests that are refused are no part of it
        return f"A last period of fewer than {plan.period:,} requests is not judged."
    return (
        f"The last {plan.rounds - plan.complete:,} of {plan.rounds:,} requests are an incomplete "
        f"period; the limits are judged on the first {plan.complete:,}."
    )


def describe_traffic(plan: WhatifPlan) -> str:
    """When requests arrive, and what policies know about it."""
    traffic, declared = plan.traffic, plan.declared_traffic
    assert traffic is not None
    known = (
        "policies have to learn how many come"
        if declared is None
        else f"policies are told {format_number(declared)} a day, and learn what is different"
    )
    spans = [int(one[-1] - one[0]) for one in plan.arrivals.values() if one is not None]
    days = math.ceil(max(spans) / FULL_DAY_US)
    return (
        f"Requests arrive from {traffic.start} ({traffic.zone}) on, {traffic.shape}, about "
        f"{format_number(traffic.per_day)} a day, for up to {days:,} day{'s' * (days != 1)}; "
        f"{known}."
    )


def describe_setup(results: WhatifResults) -> Iterator[str]:
    plan, scenario = results.plan, results.plan.scenario
    problem, seeds = plan.problem, len(plan.seeds)
    sizes = format_sizes(problem.min_draws or problem.draws, problem.draws)
    when = f"every {plan.period:,}" if plan.horizon is None else f"the {plan.rounds:,}"
    held = f"which must hold at the end of {when} requests"
    if plan.has_windows:
        others = f", the others at the end of {when} requests" * plan.has_periods
        held = f"which must hold in every window of the calendar{others}"
    yield (
        f"{plan.file.path}: {sizes} of {problem.size} experts are drawn for each request, "
        f"under {len(problem.limits)} limits, {held}."
    )
    if plan.traffic is not None:
        yield describe_traffic(plan)
    about = " References keep budgets on average, at this traffic." * has_known_optimum(problem)
    yield from (text + about for text in plan.file.describe_request_bounds())
    if not scenario.synthetic:
        yield scenario.description
    yield (
        f"{len(plan.policies)} polic{'ies' if len(plan.policies) > 1 else 'y'}, {plan.rounds:,} "
        f"requests each, {seeds} seed{'s' * (seeds > 1)}; all policies get the same requests."
    )
    yield plan.describe_feedback()
    if plan.calls is not None:
        known = "; the references know the means" * bool(plan.calls.means)
        yield f"{describe_call_costs(plan.calls)[:-1]}{known}."
    if scenario.questions:
        part = f" ({format_percent(scenario.blanks / scenario.cells)})" * (scenario.blanks > 9)
        yield (
            f"Missing answers in the table: {scenario.blanks:,} of {scenario.cells:,}{part}; a "
            "missing answer counts as 0."
        )
    if scenario.unused:
        more = ", ..." if len(scenario.unused) > 8 else ""
        yield f"Unused columns of the table: {', '.join(scenario.unused[:8])}{more}."
    if scenario.contexts:
        yield (
            f"Contexts: {', '.join(scenario.contexts)}; distinct and noisy-or share among them "
            "what they learn, others learn each alone."
        )
    for spec in plan.policies:
        yield describe_policy(spec, plan.policy_at(spec), plan.judged_unit)
    for spec, reason in results.refused.items():
        yield f"{spec} did not run: {reason}"
    for spec, warning in results.warned.items():
        yield f"{spec} warns: {warning}"


def describe_policy(spec: str, policy: Policy, unit: str = "period") -> str:
    """What the policy of a spec does, and what it guarantees with its settings."""
    name, colon, _ = spec.partition(":")
    if name == "auto":
        parts = [f"{spec} is {policy.name} here, which {policy.summary}"]
    else:
        parts = [f"{spec} {summarize_policy(name)}{' (with your settings)' if colon else ''}"]
    if policy.guard:
        where = "in" if "window" in unit else "at the end of"
        parts.append(f"its guard keeps the limits {where} every {unit.replace('run', 'period')}")
    elif type(policy).guard:  # it is on by default
        parts.append("its guard is off, so it does not guarantee the limits")
    if isinstance(policy, NoisyOr):
        share = f"{100 * policy.explore:g}% of its rounds" if policy.explore < 1 else "every round"
        known = f"propensities in {share}" if policy.explore else "no propensities"
        parts.append(f"it records {known}")
    return f"{'; '.join(parts)}."


def build_reward_section(results: WhatifResults, paths: FigurePaths) -> list[Block]:
    compared = {name: results.reference(name) for name in REFERENCE_COLUMNS}
    shown = {name: one for name, one in compared.items() if one is not None}
    columns = [
        f"vs {REFERENCE_COLUMNS[name]}{'' if one.kept else ' ✗'}" for name, one in shown.items()
    ]
    rows = []
    for policy in results.ranked:
        own = results.reference(policy.kind)
        values = [own.value if own else None, *(one.value for one in shown.values())]
        gaps = ["-" if one is None else f"{policy.reward - one:+.4f}" for one in values]
        rows.append((policy.policy, policy.allowed, *policy.cells[:3], *gaps, *policy.cells[3:]))
    kinds = [
        f"{join_words(names, 'and')}: {kind.plays}"
        for key, kind in DISTRIBUTION_KINDS.items()
        if (names := [name for name, one in results.policies.items() if one.kind == key])
    ]
    units = results.plan.judged_units.replace("runs", "periods")
    columns += ["seeds within", f"{units} within"]
    references, notes = [], []
    for name, one in results.references.items():
        note, cells = (one, ("-", "-", "-")) if isinstance(one, str) else (one.note, one.cells)
        label = TEXTS["references"][name].format(panels=results.plan.panels)
        references.append((label, *cells))
        notes += [f"{label}: {note}."] if note else []
    return [
        Heading("Rewards"),
        *figure_blocks(paths, "reward"),
        make_table(TEXTS["tables"]["rewards"], rows, columns, kinds="; ".join(kinds), units=units),
        *([make_table(TEXTS["tables"]["references"], references)] if references else []),
        *([Bullets(notes)] if notes else []),
    ]


def build_limits_section(results: WhatifResults, paths: FigurePaths) -> list[Block]:
    plan = results.plan
    if not plan.problem.limits or not results.policies:
        return []
    rows = [
        (written.words, *(format_limit_cell(plan, one, n) for one in results.policies.values()))
        for n, written in enumerate(plan.file.limits)
    ]
    more = f" The first {MAX_LIMIT_PANELS} limits are shown." * (len(rows) > MAX_LIMIT_PANELS)
    each = f"Averages {'in each period' if plan.has_several_periods else 'since the first request'}"
    over = "complete periods" if plan.complete else "all requests"
    texts = TEXTS["tables"]["limits"]
    if plan.has_windows:
        each = f"Budgets and shares in each window{f'; {each.lower()}' * plan.has_periods}"
        texts = TEXTS["tables"]["window_limits"]
        over = f"windows{f' or {over}' * plan.has_periods}"
        refused = (format_percent(result.refused) for result in results.policies.values())
        rows.append(("refused requests", *refused))
    return [
        Heading("Limits"),
        *figure_blocks(paths, "limits", each=each, more=more),
        make_table(texts, rows, list(results.policies), over=over),
    ]


def format_limit_cell(plan: WhatifPlan, result: PolicyResult, n: int) -> str:
    """Format the average under a limit, or the part of a budget of the calendar that was used."""
    found = result.list_windows(n)
    written = plan.file.limits[n]
    if not found:
        limit = written.limit
        spend = np.array([run.spend[n] for run in result.runs])
        count = len(spend)
        violated = limit.sign * (spend - limit.bound) < -1e-12 * limit.bound
        bad = int(violated.sum()) if plan.complete else 0
        text = f"{spend.mean() / written.unit(plan.problem.draws):.4g}"
    else:
        count = sum(run.windows for run in found)
        bad = sum(run.bad for run in found)
        text = format_percent(result.window_use(n))
        if not written.counts_totals:
            amounts = np.concatenate([run.amounts[run.judged] for run in found])
            text = f"{amounts.mean():.4g}" if amounts.size else "-"
    return f"{text} ✗ {bad}/{count}" if bad else text


def build_prices_section(results: WhatifResults) -> list[Block]:
    if not results.plan.problem.limits or not any(results.prices.values()):
        return []
    return [
        Heading("What each limit costs"),
        Paragraph(TEXTS["prices"]),
        *(make_price_table(results, kind) for kind in results.prices),
    ]


def make_price_table(results: WhatifResults, kind: str) -> TableBlock:
    names = [name for name, one in results.policies.items() if one.kind == kind]
    rows = []
    for limit, price in zip(results.plan.file.limits, results.prices[kind], strict=True):
        gain = results.plan.file.span * price.gain_at(price.price)
        measured = results.measured_gain(price)
        per_unit = results.plan.file.span * price.price * limit.unit(results.plan.problem.draws)
        cells = (
            "yes" if results.gain(price) > 1e-7 else "no",
            f"{abs(per_unit):.4g}" if gain > 1e-7 else "0",
            f"{gain:.6f}",
            "-" if measured is None else f"{measured:.6f}",
        )
        rows.append((limit.words, *cells, TEXTS["price_verdicts"][price.verdict]))
    return make_table(
        TEXTS["tables"]["prices"],
        rows,
        plays=DISTRIBUTION_KINDS[kind].plays,
        names=join_words(names, "and"),
    )


def build_experts_section(results: WhatifResults, paths: FigurePaths) -> list[Block]:
    if not results.policies:
        return []
    headline, experts = results.headline, results.plan.problem.experts
    kind, best = DISTRIBUTION_KINDS[headline.kind], results.reference(headline.kind)
    asked = {name: one.asked for name, one in results.policies.items()}
    if best is not None and best.asked is not None:
        asked[kind.label] = best.asked
    order = np.argsort(-headline.asked, kind="stable")[:15]
    rows = [(experts[i], *(f"{100 * shares[i]:.1f}%" for shares in asked.values())) for i in order]
    more = f" The {MAX_EXPERT_ROWS} asked most often are shown." * (len(experts) > MAX_EXPERT_ROWS)
    return [
        Heading("Who is asked"),
        *figure_blocks(
            paths, "experts", best=kind.best.format(panels=results.plan.panels), more=more
        ),
        make_table(TEXTS["tables"]["experts"], rows, list(asked), count=len(rows)),
    ]


def build_sweep_section(results: WhatifResults, paths: FigurePaths) -> list[Block]:
    plan = results.plan
    if plan.sweep is None:
        return []
    limit, rows = plan.sweep.limit, []
    for bound, level in plan.bounds:
        best = [results.reference(kind, level) for kind in plan.kinds]
        cells = ["-" if one is None else f"{one.value:.4f}" for one in best]
        cells += [
            "-" if one is None else f"{one.reward:.4f}{' ✗' if one.violated else ''}"
            for one in map(results.policies_at(level).get, plan.policies)
        ]
        rows.append((f"{bound:.6g}{' (as in the file)' if level is None else ''}", *cells))
    name, side = limit.limit.name, limit.limit.side.replace("_", " ")
    notes, labels = describe_sweep(results), [DISTRIBUTION_KINDS[kind].label for kind in plan.kinds]
    head = [f"{name} {side}, per {limit.per}", *labels, *plan.policies]
    return [
        Heading(f"Other bounds on {name}"),
        *figure_blocks(paths, "sweep", limit=name),
        make_table(TEXTS["tables"]["sweep"], rows, head),
        *([Bullets(notes)] if notes else []),
    ]


def describe_sweep(results: WhatifResults) -> list[str]:
    """What `auto` selects at other bounds, and why some policies did not run."""
    plan = results.plan
    bounds: dict[str, list[str]] = {}
    for level in plan.levels:
        notes = [
            f"{name} did not run: {why}" for name, why in results.refusals(level.number).items()
        ]
        if level.reason:
            notes.append("no policy can keep all limits")
        else:
            usual = plan.auto_choices()
            notes += [one for one in plan.auto_choices(level.number) if one not in usual]
        for note in notes:
            bounds.setdefault(note, []).append(f"{level.written:.6g}")
    return [f"At {join_words(where, 'and')}: {note.rstrip('.')}." for note, where in bounds.items()]


def figure_blocks(paths: FigurePaths, name: str, **values: str) -> list[Block]:
    """A figure of texts.toml; nothing if it was not drawn."""
    return [make_figure(TEXTS["figures"][name], paths[name], **values)] if name in paths else []
