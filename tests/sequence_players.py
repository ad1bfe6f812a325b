"""Players of command sequences: a `Router`, and routers of stores behind the handler of commands.

A `Router` is saved and loaded in between; a stored router is closed, or lost as in a crash, and
loaded again from its snapshot and the events after it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import structs

import bylot
from bylot.errors import BylotError, DecisionNotFound
from bylot.eventlog import commands
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.config_validation import PreparedConfig, prepare_config
from bylot.eventlog.repository import RouterRepository
from bylot.limits.keys import list_given_keys
from bylot.router.config import problem_to_data
from bylot.router.decision import Receipt
from bylot.router.engine import RouterEngine
from bylot.router.status import RouterStatus
from bylot.store import open_store
from limit_fuzzer import SETUPS, Pool
from logged_aggregate import make_config

EVENTS_BETWEEN_SNAPSHOTS = 12


@dataclass(frozen=True)
class Variant:
    """What a router is created with beside its limits.

    terms: which only stored routers have, so that none in memory is asked
    """

    policy: str = ""
    feedback: Any = "panel"
    rewards: tuple[float, float] = (0.0, 1.0)
    memory: int = 100_000
    max_contexts: int = 50
    terms: tuple[tuple[str, Any], ...] = ()

    @property
    def is_stored_only(self) -> bool:
        return bool(self.terms)


VARIANTS = (
    Variant(),
    Variant(rewards=(-1.0, 3.0)),
    Variant("noisy-or", "members"),
    Variant("noisy-or", "winner"),
    Variant(memory=12),
    Variant(max_contexts=2),
    Variant(terms=(("wait", 3_000.0), ("default", 0.25), ("aggregate", "last"))),
    Variant("noisy-or", "members", terms=(("wait", 900.0), ("aggregate", "sum"))),
)


@dataclass(frozen=True)
class Step:
    """A command. about: the decision, by its number in the sequence, or an id that none has."""

    verb: str
    about: int | str = ""
    given: dict[str, Any] = field(default_factory=dict)
    pool: Pool | None = None  # of an edit


@cache
def make_template(setup: str, variant: Variant, seed: int) -> tuple[bylot.Router, PreparedConfig]:
    """Return a new router in memory, and what a stored one begins with; both are to be copied."""
    problem = SETUPS[setup].make_problem(SETUPS[setup].limits, Pool())
    policy = variant.policy or SETUPS[setup].policy
    shared: dict[str, Any] = {
        "seed": seed,
        "rewards": variant.rewards,
        "feedback": variant.feedback,
        "memory": variant.memory,
        "max_contexts": variant.max_contexts,
    }
    router = bylot.Router(problem, policy, **shared)
    config = make_config(problem, policy, **shared, **dict(variant.terms))
    return router, prepare_config(config)


class MemoryPlayer:
    """Plays a sequence on a `Router`."""

    def __init__(self, router: bylot.Router, path: Path) -> None:
        self.router = copy.deepcopy(router)
        self.path = path
        self.at = 0
        self.ids: list[str] = []
        self.router.clock = self.read_clock

    def read_clock(self) -> float:
        return self.at / 1e6

    def play(self, batch: Sequence[Step], at: int) -> list[Any]:
        """Return the answers to commands, or their errors."""
        self.at = at
        answers: list[Any] = []
        for step in batch:
            id = self.ids[step.about] if isinstance(step.about, int) else step.about
            try:
                answers.append(getattr(self, step.verb)(id, **step.given))
            except BylotError as error:
                answers.append(error)
        self.ids += [answer.id for answer in list_decisions(batch, answers)]
        return answers

    def decide(self, id: str, context: Any, available: Any, keys: Any) -> bylot.Decision:
        return self.router.decide(context, available, **keys)

    def report(self, id: str, **given: Any) -> str:
        receipt = self.router.reward(id, **given)
        if receipt == Receipt.UNKNOWN:
            raise DecisionNotFound("no such decision")
        return str(receipt)

    def cancel(self, id: str) -> None:
        self.router.cancel(id)

    def replace(self, id: str, failed: str, available: Any) -> bylot.Decision:
        return self.router.replace(id, failed, available)

    def edit(self, id: str, problem: bylot.Problem) -> None:
        self.router.change(problem)

    def set_tenant(self, id: str, tenant: str, limits: Any) -> None:
        self.router.set_tenant(tenant, limits)

    def measure_tenant(self, id: str, tenant: str) -> Any:
        return tuple(self.router.tenant(tenant))

    def show_status(self, id: str) -> RouterStatus:
        return self.router.status()

    def reopen(self) -> None:
        """Save and load."""
        self.router.save(self.path)
        self.router = bylot.Router.load(self.path, clock=self.read_clock)

    @property
    def engine(self) -> RouterEngine:
        return self.router.engine

    def find_place(self, number: int) -> int:
        return int(self.ids[number][1:])


class StoreSide:
    """A store, and a handler of commands that is opened again now and then."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.open()

    def open(self) -> None:
        """Open the store."""
        self.store = open_store(self.address)
        self.repository = RouterRepository(
            self.store, self.address, 1e6, every=EVENTS_BETWEEN_SNAPSHOTS
        )
        self.handler = CommandHandler(self.repository)

    def close(self) -> None:
        """Write snapshots of all open routers, and close the store."""
        self.handler.close()


class StorePlayer:
    """Plays a sequence on a router of a store."""

    def __init__(self, side: StoreSide, name: str, prepared: PreparedConfig, at: int) -> None:
        self.side = side
        self.name = name
        self.at = at
        self.ids: list[str] = []
        config, core = prepared
        own = PreparedConfig(config, copy.deepcopy(core))
        (self.view,) = side.handler.perform_all([commands.CreateRouter(name, config, own)], at)

    def play(self, batch: Sequence[Step], at: int) -> list[Any]:
        """Return the answers to commands, which are committed together, or their errors."""
        self.at = at
        wanted = [self.make_command(step) for step in batch]
        answers = self.side.handler.perform(wanted, at)
        self.ids += [answer.id for answer in list_decisions(batch, answers)]
        return answers

    def make_command(self, step: Step) -> commands.Command:
        """Return a step as a command."""
        id = self.ids[step.about] if isinstance(step.about, int) else step.about
        given = step.given
        match step.verb:
            case "decide":
                keys = list_given_keys(given["keys"])
                more = {name: given[name] for name in ("key", "defer", "holder") if name in given}
                return commands.MakeDecision(
                    self.name, given["context"], given["available"], keys=keys, **more
                )
            case "report":
                return commands.RecordReward(id, **given)
            case "cancel":
                return commands.CancelDecision(id, **given)
            case "replace":
                return commands.ReplaceMember(id, **given)
            case "activate":
                return commands.ActivateDecision(id)
            case "record":
                return commands.GetDecision(id)
            case "edit":
                config = self.aggregate.config
                problem = problem_to_data(given["problem"])
                return commands.EditRouter(self.name, structs.replace(config, problem=problem))
            case "reconfigure":
                config = structs.replace(self.aggregate.config, **given)
                return commands.EditRouter(self.name, config)
            case "set_tenant":
                return commands.SetTenant(self.name, given["tenant"], given["limits"])
            case "measure_tenant":
                return commands.GetTenant(self.name, given["tenant"])
            case "list_tenants":
                return commands.ListTenants(self.name, limit=2)
            case "show_status":
                return commands.GetRouter(self.name)
        raise ValueError(step.verb)

    def sweep(self) -> None:
        """Close the decisions that are due."""
        self.side.handler.sweep(self.at)

    @property
    def aggregate(self) -> RouterAggregate:
        return self.side.repository.get(self.name, self.at)

    @property
    def engine(self) -> RouterEngine:
        return self.aggregate.engine

    def find_place(self, number: int) -> int:
        return int(self.ids[number].split(".")[2])

    def reopen(self, is_lost: bool) -> None:
        """Load the router from the store: after a crash, or after it was closed with a snapshot."""
        refused = self.engine.core.book.refused  # a log has them after the next decision
        repository = self.side.repository
        if is_lost:
            repository.drop([self.name])
        else:
            repository.release(self.name)
        self.engine.core.book.refused = refused

    def finish(self) -> None:
        """Give up the lease."""
        repository = self.side.repository
        repository.store.release(repository.owner, [self.view.number])
        repository.drop([self.name])


def list_decisions(batch: Sequence[Step], answers: Sequence[Any]) -> list[bylot.Decision]:
    """Return the decisions among answers that were made."""
    return [
        answer
        for step, answer in zip(batch, answers, strict=True)
        if step.verb == "decide" and isinstance(answer, bylot.Decision)
    ]
