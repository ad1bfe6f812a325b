"""Saved files: a router in memory with its open decisions, from which it continues bit for bit.

The first line is JSON, and says what the rest is: a snapshot in MessagePack, sealed by its hash.
"""

import json
import math
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, msgpack

from bylot._atomic_write import replace_file
from bylot.errors import SavedFileError, SavedFileMissing
from bylot.limits.request import Ticket
from bylot.policies import policy_to_data
from bylot.policies.validation import check_at_least_one
from bylot.problem.limits import MAX_COST
from bylot.router.changes import PackedDecision, RewardReceived, pack_decision, unpack_decision
from bylot.router.config import RouterConfig, problem_to_data
from bylot.router.core import RouterCore
from bylot.router.engine import RouterEngine
from bylot.router.memory_engine import make_engine
from bylot.router.open_decisions import OpenDecision, index_reports
from bylot.router.snapshot import SNAPSHOT_VERSION, CoreData, core_from_data, core_to_data

SAVED_FILE_FORMAT = "bylot-router"
SEAL_BYTES = 16
MAX_CHANCE = 1 + 1e-9
MAX_WEIGHT = 1e6


class SavedDecision(Struct, frozen=True):
    """A decision with its reports; fields as in `OpenDecision`."""

    made: PackedDecision
    is_open: bool
    rewards: list[RewardReceived]
    failed: tuple[str, ...]
    is_cancelled: bool


class SavedRouter(Struct, frozen=True):
    """The content of a file; fields as in `RouterEngine`."""

    config: RouterConfig
    core: CoreData
    pool_since: int
    refused: dict[int, int]
    decisions: list[SavedDecision]


def make_config(engine: RouterEngine) -> RouterConfig:
    """Return the configuration of a router in memory."""
    core = engine.core
    run = core.run
    return RouterConfig(
        version=engine.version,
        problem=problem_to_data(core.problem),
        policy=policy_to_data(core.policy),
        seed=run.seed,
        horizon=run.horizon,
        rewards=(run.low, run.high),
        feedback=run.feedback,
        max_contexts=core.max_contexts,
        memory=engine.terms.memory,
    )


def encode_engine(engine: RouterEngine) -> bytes:
    """Return the content of a saved file."""
    decisions = [pack_open_decision(decision, True) for _, decision in engine.open]
    decisions += [pack_open_decision(decision, False) for decision in engine.open.recent.values()]
    saved = SavedRouter(
        make_config(engine),
        core_to_data(engine.core, with_rule=False),
        engine.pool_since,
        engine.core.book.refused,
        decisions,
    )
    try:
        body = msgpack.encode(saved, enc_hook=convert_from_numpy)
    except (TypeError, UnicodeError) as error:
        raise SavedFileError(f"the router cannot be saved: {error}") from error
    header = {"format": SAVED_FILE_FORMAT, "version": SNAPSHOT_VERSION, "seal": hash_body(body)}
    return json.dumps(header).encode() + b"\n" + body


def convert_from_numpy(value: object) -> object:
    """Return a text or a number of NumPy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved")


def hash_body(body: bytes) -> str:
    """Return the hash that a saved file has of its content."""
    return blake2b(body, digest_size=SEAL_BYTES).hexdigest()


def write_saved_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a crash leaves the old one as it was."""
    try:
        replace_file(path.resolve(), content)  # a link stays a link
    except OSError as error:
        raise SavedFileError(f"{path} cannot be written: {error.strerror}") from error


def load_engine(path: Path) -> RouterEngine:
    """Return the engine of the router in a saved file."""
    body = read_saved_file(path)
    try:
        saved = msgpack.decode(body, type=SavedRouter)
        check_at_least_one("max_contexts", saved.config.max_contexts)
        check_at_least_one("memory", saved.config.memory)
        engine = make_engine(core_from_data(saved.config, saved.core), saved.config.terms)
        engine.pool_since = saved.pool_since
        engine.version = saved.config.version
        engine.core.book.refused = saved.refused
        for each in saved.decisions:
            decision = unpack_open_decision(each, engine)
            if each.is_open:
                engine.open.add(decision.t, decision)
            else:
                engine.open.remember(decision.t, decision)
        return engine
    except (
        *(LookupError, TypeError, AttributeError, ValueError, OverflowError, MemoryError),
        msgspec.MsgspecError,
    ) as why:
        raise SavedFileError(f"{path} is damaged: {type(why).__name__}: {why}") from why


def read_saved_file(path: Path) -> bytes:
    """Return the body of a saved file; another format or version, or a damaged file, is refused."""
    remedy = "use a file written by save(), or start with Router(problem)"
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header: Any = json.loads(head)
    except FileNotFoundError:
        raise SavedFileMissing(f"{path} does not exist", remedy=remedy) from None
    except OSError as error:
        raise SavedFileError(f"{path} cannot be read: {error.strerror}", remedy=remedy) from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or absurdly nested
        header = None
    formats = (header.get("format"), header.get("form")) if isinstance(header, dict) else ()
    if SAVED_FILE_FORMAT not in formats:  # version 1 has `form`
        raise SavedFileError(f"{path} is not a {SAVED_FILE_FORMAT} file", remedy=remedy)
    if header.get("version") != SNAPSHOT_VERSION:
        raise SavedFileError(
            f"{path} has version {header.get('version')!r}; this bylot reads version "
            f"{SNAPSHOT_VERSION}",
            remedy="use the bylot that wrote it, or start with Router(problem)",
        )
    if header.get("seal") != hash_body(body):
        raise SavedFileError(
            f"{path} was changed after it was saved, or cut short",
            remedy="restore it from a backup",
        )
    return body


def pack_open_decision(decision: OpenDecision, is_open: bool) -> SavedDecision:
    """Return what a file keeps of a decision, its panel as it is now."""
    return SavedDecision(
        pack_decision(decision.known),
        is_open,
        [*decision.rewards.values()],
        decision.failed,
        decision.is_cancelled,
    )


def unpack_open_decision(saved: SavedDecision, engine: RouterEngine) -> OpenDecision:
    """Return a decision, which must fit the router that it belongs to."""
    core = engine.core
    t = saved.made.t
    if not 0 <= t < core.t:
        raise SavedFileError(f"a decision has number {t!r}, but {core.t} were made")
    if saved.is_cancelled and (saved.is_open or any(x.value is not None for x in saved.rewards)):
        raise SavedFileError(f"decision {t} was cancelled, but is open or has a reward")
    most = MAX_COST * core.problem.draws
    costs = (*saved.made.spend.values(), *saved.made.expected.values())
    if not all(0 <= cost <= most for cost in costs):
        raise SavedFileError(f"decision {t} has the impossible costs {saved.made.spend}")
    made = unpack_decision(saved.made, core.contexts[saved.made.context])
    if t >= engine.pool_since and not fits_pool(made.ticket, core, exchanged=bool(saved.failed)):
        raise SavedFileError(f"decision {t} has draws or probabilities that this pool cannot have")
    return OpenDecision(
        t,
        made=made,
        rewards=index_reports(saved.rewards),
        failed=saved.failed,
        is_cancelled=saved.is_cancelled,
    )


def fits_pool(ticket: Ticket, core: RouterCore, *, exchanged: bool) -> bool:
    """Return whether compiled code can learn from a ticket of this pool.

    exchanged: whether a member was replaced, so that the panel has no probabilities
    """
    policy = core.policy
    size = core.problem.size
    q = ticket.draw_probabilities
    p = ticket.inclusion
    unknown = math.isnan(ticket.propensity)
    drawn_as_set = not policy.draws_iid and (policy.draws_sets or not unknown)
    return bool(
        ticket.draws.size == core.problem.draws
        and q.size == (core.problem.draws if policy.draws_iid and not exchanged else 0)
        and p.size == (size if drawn_as_set and not exchanged else 0)
        and ticket.available.size in (0, size)
        and ticket.draws.min() >= 0
        and ticket.draws.max() < size
        and ((q > 0) & (q <= MAX_CHANCE)).all()
        and ((p >= 0) & (p <= MAX_CHANCE)).all()
        and 0 < ticket.share <= MAX_CHANCE
        and (unknown or 0 < ticket.propensity <= MAX_CHANCE)
        and 0 <= ticket.weight < MAX_WEIGHT
    )
