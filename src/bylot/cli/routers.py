"""`bylot router create|list|show|edit|tenant|tenants|log|delete`, `decide`, `reward`: served
routers.

`bylot router copy|import|export|verify`, which read and write stores and files, are in `stores`.
"""

import argparse
import sys
import warnings
from typing import TYPE_CHECKING, Any

from bylot._scopes import SCOPE_NAMES
from bylot._text import format_number, format_table, print_progress
from bylot._windows import WINDOW_WORDS
from bylot.cli import stores
from bylot.cli.given_limits import BOUND_FORM, WHEN_SPENT, edit_limits, parse_bound
from bylot.cli.options import (
    FEEDBACK_HELP,
    FEEDBACK_KINDS,
    add_group,
    add_named_verb,
    add_verb,
    connect_client,
    format_policy,
    parse_named_amount,
    parse_names,
    parse_reward,
    print_result,
)
from bylot.errors import AccessDenied, BylotWarning, PolicyError, ProblemError

if TYPE_CHECKING:
    from bylot.client import RemoteRouter
    from bylot.evaluate import PastLog
    from bylot.limits.keys import TenantWindow

AGGREGATES = ["earliest", "last", "sum"]


def add(verbs: Any) -> None:
    kinds = add_group(verbs, "router", "create, list, show, edit and delete served routers")
    add_create(kinds)
    add_verb(kinds, "list", run_list, "list the routers of the server").add_server()
    add_named_verb(kinds, "show", run_show, "show the limits of a router and what it has learned")
    add_edit(kinds)
    add_tenants(kinds)
    add_named_verb(kinds, "log", run_log, "print decisions and rewards, for `bylot evaluate`")
    delete = add_named_verb(kinds, "delete", run_delete, "delete a router and all its decisions")
    delete.add_flag("--yes", "confirm the deletion")
    stores.add_router_verbs(kinds)
    decide = add_named_verb(verbs, "decide", run_decide, "ask a served router for a panel")
    decide.add_option("--context", None, "kind of request (default: none)")
    for scope in SCOPE_NAMES:
        text = f"whose limits count the request too, if the router has limits for each {scope}"
        decide.add_option(f"--{scope}", None, text)
    decide.add_option(
        "--available",
        "EXPERTS",
        "experts that can be asked now, comma-separated (default: all)",
        parse_names,
    )
    decide.add_argument(
        "--as",
        dest="key_name",
        metavar="NAME",
        help="idempotency key: the same key returns the same decision",
    )
    decide.add_flag("--defer", "start the waiting time for the reward on activation only")
    reward = add_verb(verbs, "reward", run_reward, "send the reward of a decision to its router")
    reward.add_argument("id", metavar="ID", help="id of the decision")
    reward.add_argument(
        "value",
        type=parse_reward,
        metavar="VALUE",
        nargs="?",
        help="a number in the router's reward range; pass, yes or true for 1, fail, no or false "
        "for 0 (default: the best of the scores of members; with --spend alone, the reward is "
        "still to come)",
    )
    reward.add_list(
        "--member",
        "EXPERT=SCORE",
        "score of a member, if the feedback of the router is members; repeatable",
        parse_member_score,
    )
    reward.add_option(
        "--winner",
        "EXPERT",
        "member that earned the reward, if the feedback of the router is winner",
    )
    reward.add_list(
        "--spend",
        "COST=AMOUNT",
        "what the panel really cost, or each member of it, as in usd=ann:1.2,bob:0.3; repeatable"
        " (default: the costs of the problem)",
        parse_spend,
    )
    reward.add_argument(
        "--as", dest="key_name", metavar="NAME", help="key of this report, if there are several"
    )
    reward.add_server()


def add_create(kinds: Any) -> None:
    create = add_verb(kinds, "create", run_create, "create a router from a problem file")
    create.add_argument("name", metavar="NAME", help="up to 63 lower-case letters, digits, - and _")
    create.add_problem()
    create.add_policies("policy to use", ["auto"])
    create.add_seed()
    create.add_count("--horizon", None, "number of decisions to come (default: unknown)")
    create.add_range("range of rewards (default: that of the file, or 0 1)")
    create.add_choice("--feedback", FEEDBACK_KINDS, FEEDBACK_HELP)
    create.add_option("--wait", "SECONDS", "how long to wait for a reward (default: any)", float)
    create.add_option("--default", "VALUE", "reward if none arrives (default: none)", parse_reward)
    create.add_choice("--aggregate", AGGREGATES, "how to combine several rewards of one decision")
    create.add_count(
        "--max-contexts",
        None,
        "contexts to create on first use (default: 1000, or what the policy allows)",
    )
    create.add_count("--memory", 100_000, "open decisions to keep for their rewards")
    create.add_path(
        "--learn-from",
        "log that the new router learns from (docs/log.md), such as `bylot router log` writes it; "
        "only for noisy-or",
    )
    create.add_server()


def add_edit(kinds: Any) -> None:
    edit = add_named_verb(
        kinds,
        "edit",
        run_edit,
        "change limits, experts and waiting times of a running router",
        "Change the configuration of a router from its next decision on. The change is validated "
        "like a new problem and recorded in the router's log.",
    )
    text = (
        "new bound of a limit on this side, or a new limit on a cost; with /hour, /day, /week or "
        "/month, of the limit per such window of the calendar, as in usd=500/day; with /tenant "
        "after that, of the limit for each tenant, as in usd=20/month/tenant; with @CONTEXTS, of "
        "the limit on the requests of these contexts, as in usd=3@icu,er"
    )
    for side in ("--at-most", "--at-least"):
        edit.add_list(side, BOUND_FORM, text, parse_bound)
    edit.add_option(
        "--zone",
        "ZONE",
        f"time zone of the limits per {WINDOW_WORDS} that are given (default: as it "
        "is; of a new one UTC)",
    )
    edit.add_argument(
        "--when-spent",
        choices=WHEN_SPENT,
        help="what happens as the budgets that are given run out (default: as it is; of a new one "
        f"{WHEN_SPENT[0]})",
    )
    edit.add_list(
        "--add",
        "NAME:COST=AMOUNT,GROUP",
        "add an expert with all its costs, and the limited groups it belongs to",
        parse_expert,
    )
    for option, metavar, text in (
        ("--drop", BOUND_FORM.replace("=BOUND", ""), "drop all limits on a cost or group, or one"),
        ("--remove", "EXPERT", "remove an expert for good"),
        ("--pause", "EXPERT", "stop asking an expert for now"),
        ("--resume", "EXPERT", "ask a paused expert again"),
    ):
        edit.add_list(option, metavar, text)
    see = "see `router create`"
    edit.add_option("--wait", "SECONDS|none", see, parse_optional_number)
    edit.add_option("--default", "VALUE|none", see, parse_optional_number)
    edit.add_argument("--aggregate", choices=AGGREGATES, help=see)
    edit.add_count("--max-contexts", None, "as many contexts as now, or more")
    edit.add_count("--min-draws", None, "the fewest experts that `noisy-or` asks for a request")


def parse_expert(text: str) -> dict[str, Any]:
    """Parse an expert.

    >>> parse_expert("zoe:usd=2.5,junior=1,generalists")
    {'name': 'zoe', 'usd': 2.5, 'junior': 1.0, 'group': ['generalists']}
    """
    name, _, rest = text.partition(":")
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    return {
        "name": name,
        **dict(parse_named_amount(part) for part in parts if "=" in part),
        "group": [part for part in parts if "=" not in part],
    }


def parse_member_score(text: str) -> tuple[str, float]:
    """Parse the score of a member.

    >>> parse_member_score("ann=0.5"), parse_member_score("bob=fail")
    (('ann', 0.5), ('bob', 0.0))
    """
    name, _, score = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected EXPERT=SCORE, such as ann=1"
        )
    return name, parse_reward(score)


def parse_spend(text: str) -> tuple[str, float | dict[str, float]]:
    """Parse what a panel cost, or each of its members.

    >>> parse_spend("usd=1.5"), parse_spend("usd=ann:1.2,bob:0.3")
    (('usd', 1.5), ('usd', {'ann': 1.2, 'bob': 0.3}))
    """
    cost, _, rest = text.partition("=")
    if ":" not in rest:
        return parse_named_amount(text)
    pairs = [part.rpartition(":") for part in rest.split(",")]
    return cost, {name.strip(): float(amount) for name, _, amount in pairs}


def parse_optional_number(text: str) -> tuple[float | None]:
    """Parse a reward or none; in a tuple, because an absent option is None too."""
    return (None if text == "none" else parse_reward(text),)


def run_create(given: argparse.Namespace) -> None:
    from bylot.evaluate import read_log, select_rounds
    from bylot.policies import Auto, describe_ignored_feedback, resolve_policy
    from bylot.policies.registry import describe_smaller_panels, fill_auto_contexts
    from bylot.problem_files import read
    from bylot.router.past_rounds import check_can_learn

    names = (
        "seed",
        "horizon",
        "feedback",
        "wait",
        "default",
        "aggregate",
        "max_contexts",
        "memory",
    )
    spec, *more = given.policy or ["auto"]
    if more:
        raise PolicyError(
            f"--policy {','.join(given.policy)}: a router has one",
            remedy="create a router for each, or compare them with `bylot simulate`",
        )
    file = read(given.file, given.experts)
    policy = fill_auto_contexts(spec, given.max_contexts or len(file.contexts) or None)
    settings = {name: getattr(given, name) for name in names}
    settings["rewards"] = tuple(given.rewards or file.rewards)
    resolved = resolve_policy(policy, file.problem, given.feedback)
    past = None
    if given.learn_from is not None:
        check_can_learn(resolved)
        log = read_log(given.learn_from, file.problem, gone=None)
        past = select_rounds(log, settings["rewards"], given.feedback)
    with connect_client(given) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", BylotWarning)  # it is printed below
        router = client.create(given.name, file.problem, policy, **settings)
        if past is not None:
            teach(router, past)
    played = format_policy(resolved)
    auto = f"{spec}: " if isinstance(policy, Auto) else ""
    warned = (
        describe_ignored_feedback(resolved, given.feedback),
        describe_smaller_panels(policy, file.problem),
    )
    lines = [f"{given.name}: {file.problem.size} experts, policy {auto}{played}"]
    lines += [f"warning: {one}" for one in warned if one is not None]
    data = {"created": given.name, "policy": played}
    if past is not None:
        lines.append(f"{given.learn_from}: {past}")
        data |= {"learned": len(past.rounds), "left_out": past.left_out}
    print_result(given, data, "\n".join(lines))


def teach(router: "RemoteRouter", past: "PastLog") -> None:
    """Let a new router learn from a log; if that fails, delete it."""
    total = f"{len(past.rounds):,} rounds"
    try:
        router.learn_from(past.rounds, lambda n: print_progress(f"... learned {n:,} of {total}"))
    except BaseException:
        print_progress(f"{router.name} has not learned the whole log: deleting it")
        router.delete()
        raise


def run_list(given: argparse.Namespace) -> None:
    import msgspec

    from bylot.eventlog.events import ConfigRecorded

    head, rows = ("name", "policy", "created"), []
    with connect_client(given) as client:
        for router in client.routers():
            # Whatever kind the first event is, it has the configuration, and no edit changes the
            # policy: the server need not load every router for a list.
            (first,) = client.send(client.router(router.name).calls.list_events(-1, limit=1)).events
            config = msgspec.json.decode(first.body, type=ConfigRecorded).config
            rows.append((router.name, format_policy(config.build_policy()), router.created))
    text = "\n".join(format_table([head, *rows])) if rows else "no routers yet"
    print_result(given, {"routers": [dict(zip(head, row, strict=True)) for row in rows]}, text)


def run_show(given: argparse.Namespace) -> None:
    with connect_client(given) as client:
        view = client.router(given.name).view()
    config = view.config
    paused = f"; paused: {', '.join(config.paused)}" if config.paused else ""
    feedback = "" if config.feedback == "panel" else f", feedback {config.feedback}"
    line = (
        f"{given.name}, {view.status.state.name}, policy "
        f"{format_policy(config.build_policy())}{feedback}, configuration version "
        f"{config.version}{paused}"
    )
    print_result(given, view, f"{line}\n{view.status}")


def run_log(given: argparse.Namespace) -> None:
    from bylot.client.decision_log import read_entries

    with connect_client(given) as client:
        for entry in read_entries(client, given.name):
            print(entry.to_json())


def run_delete(given: argparse.Namespace) -> int:
    """Delete a router; 2 without --yes."""
    if not given.yes:
        text = f"this would delete {given.name} and all its decisions; add --yes to confirm"
        print(f"bylot: {text}", file=sys.stderr)
        return 2
    with connect_client(given) as client:
        client.router(given.name).delete()
    print_result(given, {"deleted": given.name}, f"{given.name} is deleted")
    return 0


def run_edit(given: argparse.Namespace) -> None:
    """Edit a router, or raise if another client changed it in between."""
    with connect_client(given) as client:
        router = client.router(given.name)
        config = router.config()
        names = ("add", "remove", "pause", "resume", "aggregate", "max_contexts", "min_draws")
        changes = {name: getattr(given, name) for name in names if getattr(given, name)}
        for name in ("wait", "default"):
            if getattr(given, name) is not None:
                (changes[name],) = getattr(given, name)
        if given.at_most or given.at_least or given.drop:
            changes["limits"] = edit_limits(config.build_problem().limits, given)
        edited = router.edit(version=config.version, **changes)
    print_result(
        given,
        {"name": given.name, "version": edited.version},
        f"{given.name}: version {edited.version}",
    )


def run_decide(given: argparse.Namespace) -> None:
    keys = {scope: getattr(given, scope) for scope in SCOPE_NAMES}
    with connect_client(given) as client:
        decision = client.router(given.name).decide(
            given.context, given.available, key=given.key_name, defer=given.defer, **keys
        )
    spend = "".join(f"; {name} {cost:.4g}" for name, cost in decision.spend.items())
    propensity = "unknown" if decision.propensity is None else f"{decision.propensity:.4g}"
    print_result(
        given,
        decision,
        f"{decision.id}  {', '.join(decision.subset)}\npropensity {propensity}{spend}",
    )


def run_reward(given: argparse.Namespace) -> None:
    with connect_client(given) as client:
        receipt = client.router(given.id.partition(".")[0]).reward(
            given.id,
            given.value,
            members=dict(given.member) or None,
            winner=given.winner,
            spend=dict(given.spend) or None,
            key=given.key_name,
        )
    print_result(given, {"decision": given.id, "receipt": receipt}, receipt)


def add_tenants(kinds: Any) -> None:
    tenant = add_named_verb(
        kinds,
        "tenant",
        run_tenant,
        "show what a tenant has spent, or give it bounds of its own",
        "Show a tenant in the current windows of the limits for each tenant. With --at-most, give "
        "it bounds of its own, in place of those that it had.",
    )
    tenant.add_argument("tenant", metavar="TENANT", help="name of the tenant")
    own = tenant.add_mutually_exclusive_group()
    text = "its own bound of a budget for each tenant, as in usd=50/month; repeatable"
    form: dict[str, Any] = {"type": parse_bound, "action": "append", "default": []}
    metavar = BOUND_FORM.replace("[/WINDOW[/tenant]]", "/WINDOW")
    own.add_argument("--at-most", **form, metavar=metavar, help=text)
    text = "remove its own bounds: those of all tenants apply again"
    own.add_argument("--clear", action="store_true", help=text)
    text = "list the tenants that have bounds of their own, or requests in recent windows"
    add_named_verb(kinds, "tenants", run_tenants, text)


def run_tenant(given: argparse.Namespace) -> None:
    from bylot.problem.limits import UPPER, Limit

    with connect_client(given) as client:
        router = client.router(given.name)
        zones = find_zones(router)
        own = []
        for bound in given.at_most:
            if "per" not in bound.counted:
                raise ProblemError(
                    f"--at-most {bound.name}={bound.bound:g}: no window",
                    remedy=f"write {bound.name}={bound.bound:g}/month, or whatever the limit "
                    "is per",
                )
            counted = bound.counted | {"scope": "tenant"}
            own.append(Limit(bound.name, bound.bound, UPPER, **counted))
        changes = given.at_most or given.clear
        view = router.set_tenant(given.tenant, own) if changes else router.tenant(given.tenant)
    lines = [f"{given.tenant}, a tenant of {given.name}"]
    lines += [describe_tenant(window, zones.get(window.limit, "UTC")) for window in view]
    print_result(given, view, "\n".join(lines))


def run_tenants(given: argparse.Namespace) -> None:
    from bylot.limits.keys import format_tenant

    with connect_client(given) as client:
        router = client.router(given.name)
        zones = find_zones(router)
        views = list(router.tenants())
    lines = [
        f"{format_tenant(view.tenant)}: {describe_tenant(window, zones.get(window.limit, 'UTC'))}"
        for view in views
        for window in view
    ]
    print_result(given, {"tenants": views}, "\n".join(lines) or f"no tenants of {given.name} yet")


def find_zones(router: "RemoteRouter") -> dict[str, str]:
    """The time zone of each limit, by its words; none if the key may not read them."""
    try:
        limits = router.problem.limits
    except AccessDenied:
        return {}
    return {limit.words: limit.zone for limit in limits}


def describe_tenant(window: "TenantWindow", zone: str) -> str:
    """A tenant in the window of one limit, in a sentence."""
    from bylot.problem.instants import format_instant

    asked = f"{window.requests:,} request{'s' * (window.requests != 1)}"
    end = f"until {format_instant(window.ends, zone)}"
    bound = f"{format_number(window.bound)}{' (its own bound)' if window.own else ''}"
    if window.left is None:
        mean = format_number(window.spent / max(window.requests, 1))
        return f"{window.limit}: {mean} per request, with a bound of {bound}; {asked} {end}"
    open_calls = f", {format_number(window.reserved)} reserved" if window.reserved else ""
    left = f"{open_calls}, {format_number(window.left)} left"
    return f"{window.limit}: {format_number(window.spent)} of {bound} spent{left}; {asked} {end}"
