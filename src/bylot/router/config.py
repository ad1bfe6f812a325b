"""What a stored router was declared with, and how that may be changed while it runs."""

from typing import Any, Literal

from msgspec import Struct

from bylot.policies.capacity import MAX_STORED_CONTEXTS

RewardAggregation = Literal["earliest", "last", "sum"]


class RouterConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that fixes a router; a change makes a new version.

    problem:   as `codec.write_problem` has it
    policy:    as `policies.write` has it
    wait:      seconds within which a reward counts; None: for as long as its decision is held
    default:   what counts as the reward if none came in that time; None: nothing is learned
    aggregate: of several rewards with different keys the earliest counts, at once; or the last, or
               the sum, when the time is up
    paused:    experts that are not to be asked for now
    """

    version: int = 1
    problem: dict[str, Any]
    policy: dict[str, Any]
    seed: int = 0
    horizon: int | None = None
    rewards: tuple[float, float] = (0.0, 1.0)
    max_contexts: int = MAX_STORED_CONTEXTS
    memory: int = 100_000
    wait: float | None = None
    default: float | None = None
    aggregate: RewardAggregation = "earliest"
    paused: tuple[str, ...] = ()
