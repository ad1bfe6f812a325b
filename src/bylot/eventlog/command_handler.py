"""CommandHandler: runs batches of commands on the routers of one store, with group commit.

Each command changes its router in memory and makes an event; then all events are written in one
transaction; then the answers are returned.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from bylot.api import DecisionRecord, RewardReceipt, RouterView, TenantList, TenantView
from bylot.errors import (
    BylotError,
    DecisionNotFound,
    DecisionStateError,
    IdempotencyKeyReused,
    PolicyCompiling,
    RewardConflict,
    RouterBusy,
    RouterNotFound,
    StoreCorrupted,
    StoreError,
    StoreUnavailable,
)
from bylot.eventlog.aggregate import RouterAggregate, make_unknown_decision_error
from bylot.eventlog.commands import (
    ActivateDecision,
    CancelDecision,
    Command,
    CreateRouter,
    DecisionCommand,
    DecisionId,
    DeleteRouter,
    EditRouter,
    GetDecision,
    GetRouter,
    GetTenant,
    LearnRounds,
    ListTenants,
    MakeDecision,
    RecordReward,
    ReplaceMember,
    SetTenant,
    check_router_name,
    decision_id_from_text,
)
from bylot.eventlog.events import BODY_DECODERS, format_timestamp
from bylot.eventlog.history import record_decision, show_events, show_stored
from bylot.eventlog.loading import has_wait
from bylot.eventlog.repository import RouterRepository
from bylot.eventlog.retention import Retention
from bylot.eventlog.snapshot import check_snapshot_size
from bylot.policies.registry import check_max_contexts
from bylot.router.decision import Decision
from bylot.router.open_decisions import make_cancelled_error
from bylot.store import DecisionEvents, Event

MAX_CLOSES_PER_SWEEP = 1_000
MAX_ROUTERS_PER_SCAN = 20
RETENTION_PAUSES = 6  # after old events were deleted, so many times as long as that took
BUSY_US = 1_000_000  # after the last command
IDLE_ROUTER_CHECK_US = 60_000_000  # between two looks at a router that no command opens


class CommandHandler:
    """Runs commands on the routers of a repository; for one thread at a time.

    keep_us: microseconds after which events are dropped; None: never
    """

    def __init__(self, repository: RouterRepository, keep_us: int | None = None) -> None:
        self.repository, self.store = repository, repository.store
        repository.keep_us = keep_us
        self.retention = None if keep_us is None else Retention(repository, keep_us)
        self.at = 0
        self.pause_s = 0.0  # to wait before `maintain` is called again, if more can be done
        self.deleted_logs: list[int] | None = None  # None: not known yet
        self.scan_after: str | None = ""  # the last name that was looked at; None: all were
        self.idle: dict[str, int] = {}  # routers with a wait, and when to look at them

    def perform(self, batch: Sequence[Command], at: int) -> list[Any]:
        """Answers to commands, or their errors, in order, once all they changed is in the store."""
        self.repository.renew_after(self.repository.lease)  # we may have been stopped
        self.at = at
        answers: list[Any] = []
        names: list[str] = []  # the router whose events an answer depends on
        final = 0
        for command in batch:
            if type(command) in OWN_TRANSACTION_COMMANDS:
                final = self.commit(answers, names, final)
            name, start = command.name, time.perf_counter()
            names.append(name)
            try:
                answers.append(self.HANDLERS[type(command)](self, command))
                self.repository.record_work(name, time.perf_counter() - start)
            except BylotError as error:  # nothing was changed
                answers.append(self.confirm(error, name))
            except Exception as error:  # the state of the router is unknown: do not use it again
                answers.append(error)
                final = self.commit(answers, names, final)
                self.repository.drop([name])
        self.commit(answers, names, final)
        return answers

    def perform_all(self, batch: Sequence[Command], at: int) -> list[Any]:
        """Return the answers to commands (`perform`), or raise the first error among them."""
        answers = self.perform(batch, at)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def commit(self, answers: list[Any], names: list[str], start: int) -> int:
        """Write uncommitted events; returns how many answers are final. If that fails, the failure
        replaces the answer, also an error: it may depend on an event that was never written.
        """
        failed = self.repository.commit()
        if failed:
            for n in range(start, len(answers)):
                answers[n] = failed.get(names[n], answers[n])
        return len(answers)

    def confirm(self, error: BylotError, name: str) -> BylotError:
        """The error; or LeaseLost if it follows from a state that another server has changed."""
        if isinstance(error, STATE_ERRORS):
            try:
                self.repository.check_current(name)
            except StoreError as newer:
                return newer
        return error

    def sweep(self, at: int) -> bool:
        """Close some decisions of open routers whose wait is over; whether more are left."""
        left = MAX_CLOSES_PER_SWEEP
        for name, one in list(self.repository.opened.items()):
            start = time.perf_counter()
            try:
                while left and (event := one.aggregate.close_due(at)) is not None:
                    self.repository.add(event)
                    left -= 1
                self.repository.record_work(name, time.perf_counter() - start)
            except StoreUnavailable:
                raise
            except Exception as error:  # of one router, which must not affect the others
                self.repository.abandon(name, at, error)
        for failure in self.repository.commit().values():
            raise failure
        return left == 0

    def maintain(self, at: int) -> bool:
        """Do a short piece of work that no command asked for; whether more can be done, at once or
        after `pause_s`.

        Large snapshots are written, the rest of deleted logs is deleted, old segments of logs are
        dropped, and decisions that are due are closed in routers that no command has opened since
        the start. These are released again, for any other server.
        """
        self.pause_s = 0.0
        if self.repository.write_parts():
            return True
        if self.deleted_logs is None:
            self.deleted_logs = self.store.deleted_logs()
        if self.deleted_logs:
            if not self.store.delete(self.deleted_logs[-1]):
                self.deleted_logs.pop()
            return True
        start = time.perf_counter()
        if self.retention is not None and self.retention.step(at):
            if at < self.at + BUSY_US:  # commands must not wait for it often
                self.pause_s = RETENTION_PAUSES * (time.perf_counter() - start)
            return True
        if self.scan_after is not None:
            rows = self.store.routers(self.scan_after, MAX_ROUTERS_PER_SCAN)
            self.idle |= {row.name: at for row in rows if has_wait(self.store, row)}
            self.scan_after = rows[-1].name if rows else None
            return True
        name = next((name for name, check in self.idle.items() if check <= at), None)
        if name is not None:
            self.idle[name] = at + IDLE_ROUTER_CHECK_US  # also if another server has it
            if name not in self.repository.opened:
                self.close_idle(name, at)
        return False

    def close_idle(self, name: str, at: int) -> None:
        """Close decisions that are due in a router that is not open."""
        try:
            router = self.repository.get(name, at)
        except (RouterBusy, PolicyCompiling):
            return
        except (RouterNotFound, StoreCorrupted):
            del self.idle[name]
            return
        if self.sweep(at) or name not in self.repository.opened:
            return  # it stays open until all are closed
        due = router.engine.open.first_due()
        if due is None:
            del self.idle[name]
        else:
            self.idle[name] = max(self.idle[name], due[0] - router.lead)
        self.repository.release(name)

    def renew(self) -> None:
        """Renew the leases of all open routers."""
        self.repository.renew()

    def close(self) -> None:
        """Write snapshots, release the leases and close the store."""
        try:
            self.repository.close()
        finally:
            self.store.close()

    def create(self, command: CreateRouter) -> RouterView:
        """Create a router, if its configuration is valid and its name is free."""
        check_router_name(command.name)
        made, first = RouterAggregate.create(0, self.at, command)
        core = made.core
        check_max_contexts(core.policy, core.problem.size, core.max_contexts)
        check_snapshot_size(core, core.max_contexts)
        row = self.store.create(command.name, self.at, first)
        self.repository.drop([command.name])  # one of this name that another server deleted
        made.number = row.number
        self.repository.claim(row)
        self.repository.add_opened(row, made)
        return self.view(made)

    def delete(self, command: DeleteRouter) -> None:
        """Delete a router and its log."""
        row = self.store.find(command.name)
        if row is None:
            raise RouterNotFound(f"no router named {command.name!r} to delete")
        self.repository.claim(row)  # the lease is enough, also if the log is damaged
        if self.store.delete(row.number) and self.deleted_logs is not None:
            self.deleted_logs.append(row.number)
        self.repository.drop([command.name])
        self.repository.damaged.pop(command.name, None)

    def edit(self, command: EditRouter) -> RouterView:
        """Change the configuration of a router, if its limits can be kept."""
        router = self.repository.get(command.name, self.at)
        version = router.config.version
        if command.version is not None and command.version != version:
            raise DecisionStateError(
                f"router {command.name!r} has version {version}, not {command.version}: it was "
                "changed meanwhile",
                remedy="read it again",
            )
        if command.config.max_contexts > router.config.max_contexts:
            check_snapshot_size(router.core, command.config.max_contexts)
        self.repository.add(router.edit(self.at, command))
        return self.view(router)

    def learn_rounds(self, command: LearnRounds) -> RouterView:
        """Let a new router learn rounds of a log, once."""
        router = self.repository.get(command.name, self.at)
        event = router.learn_rounds(self.at, command)
        if event is not None:
            self.repository.add(event)
        return self.view(router)

    def get_router(self, command: GetRouter) -> RouterView:
        """A router, its configuration and status."""
        return self.view(self.repository.get(command.name, self.at))

    def decide(self, command: MakeDecision) -> Decision:
        """Draw a panel; under a known key, return the decision made then, if not cancelled."""
        router = self.repository.get(command.name, self.at)
        if command.key is not None:
            before = self.repository.find_key(router.name, command.key)
            if before is not None:
                if before.seq < self.repository.opened[router.name].expired:
                    raise IdempotencyKeyReused(
                        f"key {command.key!r} was used for a decision that is no longer kept",
                        remedy="use a new key",
                    )
                check_same_request(before, command)
                found = router.decision_events(before.seq)  # members may have been replaced
                decision = show_events(router.name, found)
                if any(event.kind == "cancelled" for event in found.since):
                    raise make_cancelled_error(decision.id, "use another key for another one")
                return decision
        event = self.repository.add(router.decide(self.at, command))
        return show_stored(router.name, event, router.engine.open.by_place[event.seq])

    def reward(self, command: RecordReward) -> RewardReceipt:
        router, seq = self.find_decision(command.id)
        event = router.reward(self.at, seq, command)
        if event is None:
            value = command.value
            if value is None and command.members:  # as `check_report` has accepted it
                value = float(max(command.members.values()))
            return RewardReceipt(decision=command.id, receipt="duplicate", value=value)
        self.repository.add(event)
        body = router.decode(event)
        return RewardReceipt(decision=command.id, receipt=body.receipt, value=body.value)

    def replace(self, command: ReplaceMember) -> Decision:
        """Let another expert take the place of a member that failed, once."""
        router, seq = self.find_decision(command.id)
        found = router.decision_events(seq)  # a failed read must leave no event behind
        event = router.replace(self.at, seq, command)
        if event is not None:
            found = DecisionEvents(found.decided, [*found.since, self.repository.add(event)])
        return show_events(router.name, found)

    def activate_or_cancel(self, command: DecisionCommand) -> Decision:
        """Start the wait of a deferred decision, or take back one that was never used."""
        router, seq = self.find_decision(command.id)
        found = router.decision_events(seq)  # a failed read must leave no event behind
        if isinstance(command, ActivateDecision):
            self.repository.add(router.activate(self.at, seq, command.by))
        else:
            self.repository.add(router.cancel(self.at, seq, command.by, command.holder))
        return show_events(router.name, found)

    def get_decision(self, command: GetDecision) -> DecisionRecord:
        router, seq = self.find_decision(command.id)
        found = router.decision_events(seq)
        return record_decision(router.name, found, router.engine.open.get(seq))

    def set_tenant(self, command: SetTenant) -> TenantView:
        """Give a tenant bounds of its own, and say where it stands."""
        router = self.repository.get(command.name, self.at)
        self.repository.add(router.set_tenant(self.at, command))
        return self.view_tenant(router, command.tenant)

    def get_tenant(self, command: GetTenant) -> TenantView:
        """What a tenant has spent in the current windows."""
        return self.view_tenant(self.repository.get(command.name, self.at), command.tenant)

    def list_tenants(self, command: ListTenants) -> TenantList:
        """Tenants after a name: those with bounds of their own or a ledger."""
        router = self.repository.get(command.name, self.at)
        known = router.core.book.get_keyed()
        keys = {*known.slots, *known.own}
        names = (name for scope, name in keys if scope == "tenant" and name > command.after)
        found = heapq.nsmallest(command.limit + 1, names)
        views = tuple(self.view_tenant(router, name) for name in found[: command.limit])
        return TenantList(views, views[-1].tenant if len(found) > command.limit else None)

    def view_tenant(self, router: RouterAggregate, tenant: str) -> TenantView:
        """A tenant of a router."""
        windows = router.core.book.measure_key("tenant", tenant, router.local_time(self.at))
        return TenantView(router=router.name, tenant=tenant, windows=tuple(windows))

    def find_decision(self, id: str) -> tuple[RouterAggregate, int]:
        """The router of a decision, and the seq of its event."""
        which = decision_id_from_text(id)
        if which is not None:
            with suppress(RouterNotFound):
                router = self.repository.get(which.name, self.at)
                ours = router.number == which.number
                if ours and which.seq < self.repository.opened[router.name].expired:
                    raise DecisionNotFound(
                        f"decision {id!r} is no longer kept",
                        remedy="report rewards sooner, or let the server keep more",
                    )
                if ours and self.has_tag(router, which):
                    return router, which.seq
        raise make_unknown_decision_error(id)

    def has_tag(self, router: RouterAggregate, which: DecisionId) -> bool:
        """Whether an id has the tag of its event: it is not of a lost log with the same numbers."""
        known = router.engine.open.get(which.seq) or router.engine.open.recent.get(which.seq)
        if known is not None and known.seal:
            return known.seal.hex().startswith(which.tag)
        event = self.repository.find_event(router.number, which.seq)
        if event is None:
            return False
        if not event.seal.hex().startswith(which.tag):
            router.decision_events(which.seq)  # raises an error if the event was changed
            return False
        if known is not None:
            known.seal = event.seal
        return True

    def view(self, router: RouterAggregate) -> RouterView:
        row = self.repository.opened[router.name].row
        return RouterView(
            name=row.name,
            number=row.number,
            created=format_timestamp(row.created),
            seq=router.seq,
            config=router.config,
            status=router.status(self.at),
        )

    HANDLERS: ClassVar[dict[type, Callable[["CommandHandler", Any], Any]]] = {
        CreateRouter: create,
        DeleteRouter: delete,
        EditRouter: edit,
        GetRouter: get_router,
        LearnRounds: learn_rounds,
        MakeDecision: decide,
        RecordReward: reward,
        ReplaceMember: replace,
        ActivateDecision: activate_or_cancel,
        CancelDecision: activate_or_cancel,
        GetDecision: get_decision,
        SetTenant: set_tenant,
        GetTenant: get_tenant,
        ListTenants: list_tenants,
    }


STATE_ERRORS = (DecisionNotFound, DecisionStateError, RewardConflict)
"""Errors about the state of a router in memory, which clients take as final."""

OWN_TRANSACTION_COMMANDS = (CreateRouter, DeleteRouter)
"""Commands with a transaction of their own: earlier events are written first."""


def check_same_request(before: Event, command: MakeDecision) -> None:
    """A key stands for one request: the decision made under it must be of the same."""
    body = BODY_DECODERS["decided"](before.body)
    was = body.context, body.available, body.defer, body.keys
    if was != (command.context, command.available, command.defer, command.keys):
        raise IdempotencyKeyReused(
            f"key {command.key!r} was used for another request to router {command.name!r}",
            remedy="use a new key for each request",
        )
