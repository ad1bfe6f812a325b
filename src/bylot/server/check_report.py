"""What `bylot serve --check` prints: what a start would do about the declared routers, the models,
and each setting with its origin, defaults last. No line shows a secret.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

from bylot._text import format_table
from bylot.errors import BylotError
from bylot.gateway.config import (
    ENV_REFERENCE,
    ModelEntry,
    build_deployment,
    name_entry,
    split_model_name,
)
from bylot.gateway.prices import CallPrice, read_call_price
from bylot.gateway.router_models import list_prices, read_typical_tokens
from bylot.problem_files.document import Document
from bylot.server.auth import check_bind_address
from bylot.server.provision import DeclaredRouter, build_declared, build_keys
from bylot.server.reconcile import RouterPlan, find_used_models, format_value, plan_routers
from bylot.server.settings import (
    SETTINGS,
    TABLES,
    LoadedSettings,
    ServerSettings,
    check_cluster,
)
from bylot.store import (
    ApiKey,
    EmptyDatabase,
    find_store_folder,
    hide_password,
    open_store,
    store_exists,
)

NO_PRICE = "no price: its calls are booked at the declared cost"
ROUTER_RULE = (
    "The file is the truth for the routers that it names: a start creates or edits them, and "
    "undoes edits by hand of limits, experts, min_draws, wait, default and aggregate. Others stay."
)


ModelRow = tuple[str, str, str, str]
"""A model: its name, its name upstream, its host, and its price."""


class CheckReport(NamedTuple):
    """The lines to print, why a start would be refused, and what to know about the routers."""

    lines: list[str]
    errors: list[BylotError]
    warnings: list[str]


def check_start(loaded: LoadedSettings) -> CheckReport:
    """Do all that a start does without writing anything."""
    settings, errors = loaded.settings, list[BylotError]()
    declared, models, plans = list[DeclaredRouter](), list[ModelRow](), list[RouterPlan]()
    with collect_errors(errors):
        check_cluster(settings)
    with collect_errors(errors):
        check_access(settings, build_keys(settings.keys).values())
    with collect_errors(errors):
        prices, folder = list_prices(settings.model_list), find_store_folder(settings.store)
        for name, entry in settings.routers.items():
            with collect_errors(errors):
                declared.append(build_declared(name, entry, prices, folder))
        models = describe_models(settings.model_list, find_used_models(declared), errors)
    with collect_errors(errors):
        plans = plan_routers(settings, declared)
    errors += [one.error for one in plans if one.error is not None]
    with collect_errors(errors):
        lines = list[str]()
        if plans:
            lines += [*describe_routers(plans, declared), "", ROUTER_RULE, ""]
        if models:
            lines += [*format_table([("model", "upstream", "host", "price"), *models]), ""]
        rows = sorted(list_setting_rows(loaded), key=lambda row: row[2] == "default")
        lines += format_table([("setting", "value", "from"), *rows])
        return CheckReport(lines, errors, [text for one in declared for text in one.warnings])
    return CheckReport([], errors, [])


def check_access(settings: ServerSettings, keys: Iterable[ApiKey]) -> None:
    """Refuse to listen beyond loopback without a key; those of the store are read if needed."""
    try:
        check_bind_address(settings.host, keys)
    except BylotError:
        if not store_exists(settings.store):
            raise
        stored: Iterable[ApiKey] = ()
        with (
            suppress(EmptyDatabase),
            closing(open_store(settings.store, read_only=True)) as store,
        ):
            stored = store.keys()
        check_bind_address(settings.host, stored)


@contextmanager
def collect_errors(errors: list[BylotError]) -> Iterator[None]:
    """Add an error to a list, and go on after the block."""
    try:
        yield
    except BylotError as error:
        if str(error) not in map(str, errors):
            errors.append(error)


def list_setting_rows(loaded: LoadedSettings) -> Iterator[tuple[str, str, str]]:
    """Each setting without secrets, and where it comes from."""
    settings = loaded.settings
    rows: dict[str, Any] = {name: getattr(settings, name) for name in SETTINGS}
    rows["store"] = hide_password(settings.store)
    rows["cluster_key"] = settings.cluster_key and "..."
    rows |= dict(list_table_fields(settings))
    for name, value in rows.items():
        yield name, str(value), loaded.origins.get(name.partition(".")[0], "default")


def list_table_fields(settings: ServerSettings) -> Iterator[tuple[str, Any]]:
    """The fields of keys and routers that are given."""
    for table in TABLES:
        for label, entry in getattr(settings, table).items():
            for name in entry.__struct_fields__:
                value, place = getattr(entry, name), f"{table}.{label}.{name}"
                if name == "digest" and value:
                    value = value.partition(":")[0]
                if isinstance(value, Document):
                    value = "models" if "models" in value.data else "in this file"
                if name == "gateway" and value is not None:
                    scorer = f", scorer {value.scorer.kind}" if value.scorer else ""
                    yield place, f"ask {value.ask}, answer {value.answer}{scorer}"
                elif value and name != "source":
                    yield place, value


def describe_models(
    entries: Sequence[ModelEntry], used: Collection[str], errors: list[BylotError]
) -> list[ModelRow]:
    """A row for each entry; the errors of those that a gateway asks are added to a list."""
    rows = []
    for number, entry in enumerate(entries):
        what, is_used = name_entry(number, entry), entry.model_name in used
        price = describe_price(read_call_price(what, entry.litellm_params, entry.model_info))
        upstream, host = describe_upstream(entry)
        try:
            made = build_deployment(what, entry, os.environ)
            upstream, host = made.model, made.host
        except BylotError as error:
            errors += [error] if is_used else []
        note = price if is_used else f"{price}; no gateway asks it"
        rows.append((entry.model_name, upstream, host, note))
    return rows


def describe_upstream(entry: ModelEntry) -> tuple[str, str]:
    """Name and host of a model whose variables are not set, or that is invalid."""
    name = entry.litellm_params.get("model")
    if not isinstance(name, str) or ENV_REFERENCE.fullmatch(name):
        return "?", "?"
    return split_model_name(name)[1], "?"


def describe_price(price: CallPrice) -> str:
    """A price per million tokens, and how long calls can be.

    >>> describe_price(CallPrice(1.5e-7, 6e-7, 1000, None))
    '$0.15 input, $0.6 output per million tokens; max_tokens 1000'
    """
    if not price.is_known:
        return NO_PRICE
    sides = (("input", price.input), ("output", price.output))
    text = ", ".join(f"${(one or 0.0) * 1e6:.6g} {side}" for side, one in sides)
    lengths = {"max_tokens": price.max_tokens, "max_input_tokens": price.max_input_tokens}
    more = [f"; {name} {value}" for name, value in lengths.items() if value is not None]
    return f"{text} per million tokens{''.join(more)}"


def describe_routers(
    plans: Sequence[RouterPlan], declared: Sequence[DeclaredRouter]
) -> Iterator[str]:
    """What a start does about each router, and the costs that follow from prices."""
    yield from format_table([("router", "at the next start"), *((x.name, str(x)) for x in plans)])
    for one in declared:
        if one.is_priced:
            yield from describe_derived_costs(one)


def describe_derived_costs(declared: DeclaredRouter) -> Iterator[str]:
    """The costs of the models of a router, and the call that they are of."""
    document = declared.entry.problem
    typical = read_typical_tokens(document, document.data.get("typical_tokens"))
    call = f" (a typical call has {typical.input} input and {typical.output} output tokens)"
    problem = declared.config.problem
    most = "member at most, judge and substitutes included"
    for key, per, note in (("costs", "call", call), ("max_costs", most, "")):
        for cost, row in problem.get(key, {}).items():
            pairs = zip(problem["experts"], row, strict=True)
            words = ", ".join(f"{name} {format_value(x)}" for name, x in pairs)
            yield f"{declared.name}: {cost} per {per}: {words}{note}"
