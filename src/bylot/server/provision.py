"""What a configuration declares: its API keys and its routers, checked.

What is done about routers that the store has, or has not, is in `reconcile`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from msgspec import structs

from bylot.errors import BylotError, LocatedError
from bylot.eventlog.commands import check_router_name
from bylot.eventlog.config_validation import validate_config
from bylot.gateway.config import GatewayEntry
from bylot.gateway.contexts import find_cluster_file, make_contexts
from bylot.gateway.router_models import (
    ModelPrices,
    describe_own_judge,
    list_gateway_faults,
    problem_from_models,
)
from bylot.gateway.scoring import make_scorer
from bylot.policies.registry import describe_smaller_panels
from bylot.problem import Problem
from bylot.problem_files.document import Document, Keys, format_keys, read_document
from bylot.problem_files.problem_file import read_problem
from bylot.router.config import RouterConfig
from bylot.server.auth import digest_secret
from bylot.server.config_requests import config_from_file, policy_from_body
from bylot.server.settings import KeyEntry, RouterEntry
from bylot.store import ApiKey

KEY_TEXT = re.compile(r"bylot_([0-9a-f]{12})_([0-9a-f]{48})")
KEY_DIGEST = re.compile(r"([0-9a-f]{12}):([0-9a-f]{64})")


def build_keys(
    entries: Mapping[str, KeyEntry], environ: Mapping[str, str] = os.environ
) -> dict[str, ApiKey]:
    """The declared keys by id; no error shows a secret."""
    found: dict[str, ApiKey] = {}
    for label, entry in entries.items():
        what = f"keys.{label}"
        if sum(one is not None for one in (entry.file, entry.env, entry.digest)) != 1:
            raise BylotError(what, expected="one of file, env and digest")
        if KEY_TEXT.search(f"{entry.file} {entry.env}"):
            raise BylotError(
                f"{what}: file or env is the key itself",
                remedy="give the name of the file or of the variable that contains it",
            )
        if entry.digest is not None:
            parts = KEY_DIGEST.fullmatch(entry.digest)
            digest = bytes.fromhex(parts[2]) if parts else b""
        else:
            parts = KEY_TEXT.fullmatch(read_secret(what, entry, environ))
            digest = digest_secret(parts[2]) if parts else b""
        if parts is None:
            source = "its digest" if entry.digest else entry.env or entry.file
            raise BylotError(
                f"{what}: {source} contains no API key",
                remedy="make one with `bylot keys create --for-config`",
            )
        if parts[1] in found:
            raise BylotError(f"{what} is the same key as keys.{found[parts[1]].label}")
        row = ApiKey(parts[1], digest, label, entry.scopes, entry.routers, 0, None)
        found[row.id] = row
    return found


def read_secret(what: str, entry: KeyEntry, environ: Mapping[str, str]) -> str:
    """The text of a key, from its file or its environment variable."""
    if entry.file is None:
        return environ.get(entry.env or "", "").strip()
    try:
        return entry.file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise BylotError(f"{what}: {entry.file} cannot be read: {reason}") from None


class DeclaredRouter(NamedTuple):
    """A router as the configuration declares it.

    config: validated, in its canonical form
    given:  the fields that are only used when a router is created, as far as they are declared
    warnings: what its operator should know
    """

    name: str
    entry: RouterEntry
    config: RouterConfig
    given: frozenset[str]
    warnings: tuple[str, ...] = ()

    @property
    def is_priced(self) -> bool:
        """Whether its costs follow from the prices of models."""
        data = getattr(self.entry.problem, "data", None)
        return isinstance(data, dict) and "models" in data

    def gives_cost(self, expert: str, cost: str) -> bool:
        """Whether the cost of a model is given beside its name, and not by its price."""
        models = self.entry.problem.data["models"] if self.is_priced else []
        return any(
            isinstance(one, dict) and one.get("name") == expert and cost in one for one in models
        )

    @property
    def source(self) -> str:
        """Where its problem is."""
        problem = self.entry.problem
        return str(problem.path if isinstance(problem, Document) else problem)


def build_declared(
    name: str, entry: RouterEntry, prices: ModelPrices, folder: Path | None = None
) -> DeclaredRouter:
    """A declared router, with its gateway checked; folder: for files of gateways, if any."""
    check_router_name(name)
    document = read_router_document(entry, prices)
    file = read_problem(document)
    if entry.gateway is not None:
        check_gateway(name, entry, entry.gateway, file.problem, prices, folder)
    scored = entry.gateway is not None and entry.gateway.scorer is not None
    filled = structs.replace(
        entry,
        seed=entry.seed or 0,
        memory=100_000 if entry.memory is None else entry.memory,
        feedback=entry.feedback or ("members" if scored else "panel"),
    )
    with locate_router_errors(name, entry):
        config, _ = config_from_file(file, filled)
        config = validate_config(structs.replace(config, paused=entry.paused or ()))[0]
    names = ("seed", "horizon", "rewards", "memory", "max_contexts")
    given = {one for one in names if getattr(entry, one) is not None}
    given |= {one for one in ("floor", "period", "rewards") if document.data.get(one) is not None}
    given |= {"draws", "feedback"} if entry.feedback or scored else {"draws"}
    smaller = describe_smaller_panels(policy_from_body(filled.policy), file.problem)
    judge = entry.gateway and describe_own_judge(entry.gateway, file.problem.experts)
    warnings = tuple(f"routers.{name}: {one}" for one in (smaller, judge) if one is not None)
    return DeclaredRouter(name, entry, config, frozenset(given), warnings)


def check_gateway(
    name: str,
    entry: RouterEntry,
    gateway: GatewayEntry,
    problem: Problem,
    prices: ModelPrices,
    folder: Path | None,
) -> None:
    """Refuse a gateway that could not start."""
    for keys, fault in list_gateway_faults(gateway, problem, prices):
        raise locate_error(name, entry, ("gateway", *keys), fault)
    with locate_router_errors(name, entry):
        if gateway.scorer is not None:
            make_scorer(gateway.scorer, refuse_to_ask)
        make_contexts(gateway.context, default_file=find_cluster_file(folder, name))


def refuse_to_ask(model: str, body: Mapping[str, Any]) -> NoReturn:
    """Stands for a judge while a configuration is checked."""
    raise AssertionError("a check of a configuration asks no model")


def read_router_document(entry: RouterEntry, prices: ModelPrices) -> Document:
    """The problem of a declared router as a document."""
    if not isinstance(entry.problem, Document):
        return read_document(Path(entry.problem))
    if isinstance(entry.problem.data, dict) and "models" in entry.problem.data:  # for its experts
        return problem_from_models(entry.problem, entry.gateway or GatewayEntry(refill=0), prices)
    return entry.problem


@contextmanager
def locate_router_errors(name: str, entry: RouterEntry) -> Iterator[None]:
    """Raise an error about a router as one about its entry in the file."""
    try:
        yield
    except LocatedError:
        raise
    except BylotError as error:
        if entry.source is None:
            raise
        raise locate_error(name, entry, (), error) from None


def locate_error(name: str, entry: RouterEntry, keys: Keys, error: BylotError) -> LocatedError:
    """An error about an entry of a router, with its place in the file."""
    field = format_keys(("routers", name, *keys))
    source = entry.source or Document()
    place = {"path": source.path, "line": source.line(keys), "field": field}
    return LocatedError(f"{field}: {error.explain()}", **place)
