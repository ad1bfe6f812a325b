"""The keeper of many routers on one store: what happens is in the log before anybody hears of it.

It works on a *batch* of commands: each changes its router in memory and makes a line of the log;
then all lines are written in one transaction; then the answers are given out.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from bylot.api import DecisionRecord, RewardReceipt, RouterView, StoredDecision
from bylot.errors import (
    BylotError,
    DecisionNotFound,
    DecisionStateError,
    IdempotencyKeyReused,
    RouterNotFound,
    StoreError,
    StoreUnavailable,
)
from bylot.eventlog import commands
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import DecisionId, decision_id_from_text, is_router_name
from bylot.eventlog.history import BODY_DECODERS, format_timestamp
from bylot.eventlog.repository import LEASE_S, MIN_EVENTS_BETWEEN_SNAPSHOTS, RouterRepository
from bylot.policies.capacity import check_max_contexts
from bylot.store import DecisionEvents, Event, Store

MAX_CLOSES_PER_SWEEP = 1_000  # decisions that are closed in one go


class CommandHandler:
    """All routers of one store that this process writes to; for one thread at a time.

    owner: a name that no other process has; lease: seconds for which a router stays ours when we no
    longer renew; every: lines of a log between two snapshots
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        lease: float = LEASE_S,
        every: int = MIN_EVENTS_BETWEEN_SNAPSHOTS,
    ) -> None:
        self.store = store
        self.shelf = RouterRepository(store, owner, lease, every)
        self.at = 0

    def perform(self, batch: Sequence[commands.Command], at: int) -> list[Any]:
        """Answers to commands, or the errors they came to, in the same order.

        None is given out before everything that the batch changed is in the store.
        """
        self.at = at
        answers: list[Any] = []
        targets: list[str] = []  # the router whose lines an answer rests on
        written = 0
        for command in batch:
            if type(command) in OWN_TRANSACTION_COMMANDS:
                written = self.settle(answers, targets, written)
            targets.append(router_name_from_command(command))
            try:
                answers.append(self.ACTS[type(command)](self, command))
            except BylotError as error:  # which leaves everything as it was
                answers.append(error)
            except Exception as error:  # a router in an unknown state must not go on
                answers.append(error)
                written = self.settle(answers, targets, written)
                self.shelf.drop([targets[-1]])
        self.settle(answers, targets, written)
        return answers

    def settle(self, answers: list[Any], targets: list[str], start: int) -> int:
        """Write what is pending; where that fails, the failure is the answer, also where there was
        an error: it may rest on a line that was never written. How many answers are final.
        """
        failed = self.shelf.commit()
        if failed:
            for n in range(start, len(answers)):
                answers[n] = failed.get(targets[n], answers[n])
        return len(answers)

    def sweep(self, at: int) -> bool:
        """Close decisions of open routers whose time is up; were there more than is good to do at
        once, while others wait?
        """
        closed = 0
        for name, fold in list(self.shelf.folds.items()):
            try:
                closed += self.close_due(fold, at, MAX_CLOSES_PER_SWEEP - closed)
            except StoreUnavailable:
                raise
            except Exception as error:  # of one router, which must not keep the others waiting
                self.shelf.give_up(name, at, error)
        for failure in self.shelf.commit().values():
            raise failure
        return closed >= MAX_CLOSES_PER_SWEEP

    def close_due(self, fold: RouterAggregate, at: int, most: int) -> int:
        """Close decisions of one router whose time is up, at most so many; how many there were."""
        for closed in range(most):
            event = fold.close_due(at)
            if event is None:
                return closed
            self.shelf.add(event)
        return most

    def renew(self) -> None:
        """Keep the leases of all open routers."""
        self.shelf.renew()

    def close(self) -> None:
        """Leave everything as whoever comes next would like to find it, and let the store go."""
        try:
            self.shelf.close()
        finally:
            self.store.close()

    def create(self, asked: commands.CreateRouter) -> RouterView:
        """A new router, if its terms make sense and its name is free."""
        if not is_router_name(asked.name):
            raise StoreError(
                f"{asked.name!r} cannot be the name of a router; give lower-case letters, digits, "
                "- and _, at most 63 of them, a letter or digit first"
            )
        fold, first = RouterAggregate.create(0, asked.name, asked.terms, self.at, asked.by)
        made = fold.router
        check_max_contexts(made.policy, made.problem.size, made.max_contexts)
        row = self.store.create(asked.name, self.at, first)
        self.shelf.drop([row.name])  # one of this name that another server deleted
        return self.view(self.shelf.fold(row.name, self.at))

    def delete(self, asked: commands.DeleteRouter) -> None:
        """Forget a router and its log."""
        row = self.store.find(asked.name)
        if row is None:
            raise RouterNotFound(f"there is no router {asked.name!r} to delete")
        self.shelf.claim(row)  # whoever has the lease may delete, also what is damaged
        self.store.delete(row.number)
        self.shelf.drop([asked.name])
        self.shelf.sick.pop(asked.name, None)

    def edit(self, asked: commands.EditRouter) -> RouterView:
        """Other terms from here on, if they can be kept."""
        fold = self.shelf.fold(asked.name, self.at)
        now = fold.terms.version
        if asked.version is not None and asked.version != now:
            raise DecisionStateError(
                f"router {asked.name!r} is at version {now}, not {asked.version}; "
                "somebody changed it in between: look at it again"
            )
        self.shelf.add(fold.edit(self.at, asked.terms, asked.by))
        return self.view(fold)

    def show(self, asked: commands.ShowRouter) -> RouterView:
        """A router and how it stands."""
        return self.view(self.shelf.fold(asked.name, self.at))

    def decide(self, asked: commands.MakeDecision) -> StoredDecision:
        """A panel; under a key that was used before, the panel that was drawn then."""
        fold = self.shelf.fold(asked.name, self.at)
        if asked.key is not None:
            before = self.shelf.pending.find(fold.number, asked.key)
            if before is not None:
                return self.again(fold, before, asked)
        event = fold.decide(
            self.at,
            context=asked.context,
            available=asked.available,
            key=asked.key,
            defer=asked.defer,
            by=asked.by,
        )
        self.shelf.add(event)
        return fold.decision(event)

    def again(
        self, fold: RouterAggregate, before: Event, asked: commands.MakeDecision
    ) -> StoredDecision:
        """The decision made under this key, if the same was asked."""
        line = BODY_DECODERS["decided"](before.body)
        if (line.context, line.available, line.defer) != (
            asked.context,
            asked.available,
            asked.defer,
        ):
            raise IdempotencyKeyReused(
                f"key {asked.key!r} was used for another request to router {fold.name!r}; "
                "take a new key for each request"
            )
        return fold.decision(before)

    def reward(self, asked: commands.GiveReward) -> RewardReceipt:
        """What becomes of a reward."""
        fold, seq = self.of(asked.id)
        event = fold.reward(
            self.at, of=seq, value=asked.value, spend=asked.spend, key=asked.key, by=asked.by
        )
        if event is None:
            return RewardReceipt(decision=asked.id, receipt="duplicate", value=asked.value)
        self.shelf.add(event)
        line = BODY_DECODERS["rewarded"](event.body)
        return RewardReceipt(decision=asked.id, receipt=line.receipt, value=line.value)

    def activate(self, asked: commands.ActivateDecision) -> StoredDecision:
        """A deferred decision is used after all."""
        fold, seq = self.of(asked.id)
        self.shelf.add(fold.activate(self.at, of=seq, by=asked.by))
        return fold.decision(self.past(fold, seq).decided)

    def cancel(self, asked: commands.CancelDecision) -> StoredDecision:
        """A decision was never used."""
        fold, seq = self.of(asked.id)
        self.shelf.add(fold.cancel(self.at, of=seq, by=asked.by))
        return fold.decision(self.past(fold, seq).decided)

    def recall(self, asked: commands.RecallDecision) -> DecisionRecord:
        """A decision and what became of it."""
        fold, seq = self.of(asked.id)
        return fold.recalled(self.past(fold, seq))

    def of(self, id: str) -> tuple[RouterAggregate, int]:
        """The router of a decision's id, and the line of the decision."""
        which = decision_id_from_text(id)
        if which is None:
            raise make_unknown_decision_error(id)
        try:
            fold = self.shelf.fold(which.name, self.at)
        except RouterNotFound:
            raise make_unknown_decision_error(id) from None
        if which.number != fold.number:  # of a router of the same name that was deleted
            raise make_unknown_decision_error(id)
        return fold, which.seq

    def past(self, fold: RouterAggregate, seq: int) -> DecisionEvents:
        """A decision and what was said of it since."""
        past = self.shelf.pending.past(fold.number, seq)
        if past is None:
            raise make_unknown_decision_error(str(DecisionId(fold.name, fold.number, seq)))
        return past

    def view(self, fold: RouterAggregate) -> RouterView:
        """A router at this moment."""
        row = self.shelf.rows[fold.name]
        return RouterView(
            name=row.name,
            number=row.number,
            created=format_timestamp(row.created),
            seq=fold.seq,
            terms=fold.terms,
            status=fold.status(),
        )

    ACTS: ClassVar[dict[type, Callable[["CommandHandler", Any], Any]]] = {
        commands.CreateRouter: create,
        commands.DeleteRouter: delete,
        commands.EditRouter: edit,
        commands.ShowRouter: show,
        commands.MakeDecision: decide,
        commands.GiveReward: reward,
        commands.ActivateDecision: activate,
        commands.CancelDecision: cancel,
        commands.RecallDecision: recall,
    }


OWN_TRANSACTION_COMMANDS = (commands.CreateRouter, commands.DeleteRouter)
"""Transactions of their own: what came before them is written first."""


def router_name_from_command(command: commands.Command) -> str:
    """The name of the router that a command is for."""
    return command.name if hasattr(command, "name") else command.id.partition(".")[0]


def make_unknown_decision_error(id: str) -> DecisionNotFound:
    """For an id that no decision has."""
    return DecisionNotFound(f"no decision has the id {id!r}; give one as `decide` answered it")
