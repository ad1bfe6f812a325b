"""What requests and answers look like; the OpenAPI document is made from these."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from bylot.durable.commands import Credited, Decision
from bylot.durable.terms import Aggregate
from bylot.service import limits
from bylot.service.errors import Problem

Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
Text = Annotated[str, Meta(max_length=limits.TEXT, pattern=limits.PRINTABLE)]
Label = Annotated[str, Meta(min_length=1, max_length=limits.TEXT, pattern=limits.PRINTABLE)]
Key = Annotated[str, Meta(min_length=1, max_length=limits.TEXT, pattern=limits.KEY)]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=limits.NAME)]
Experts = Annotated[tuple[Label, ...], Meta(max_length=limits.EXPERTS)]
Spend = Annotated[dict[Label, Finite], Meta(max_length=limits.COSTS)]
Row = Annotated[tuple[Finite, ...], Meta(max_length=limits.EXPERTS)]
Costs = Annotated[dict[Label, Row], Meta(max_length=limits.COSTS)]
Setting = bool | int | float | Text | None | dict[Text, int | float | Text]


class LimitForm(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A bound on a long-run average: of a `cost`, or of the `share` of some `members`; either
    `at_most` or `at_least`.
    """

    cost: Label | UnsetType = UNSET
    share: Label | UnsetType = UNSET
    members: Experts | UnsetType = UNSET
    at_most: Finite | UnsetType = UNSET
    at_least: Finite | UnsetType = UNSET


Limits = Annotated[tuple[LimitForm, ...], Meta(max_length=limits.LIMITS)]


class ProblemForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to choose from, what asking each of them costs, and what is promised.

    draws: experts of a panel; floor: the least chance of each; period: decisions at whose end the
    limits hold
    """

    experts: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=limits.EXPERTS)]
    draws: Annotated[int, Meta(ge=1, le=limits.DRAWS)]
    costs: Costs = {}
    limits: Limits = ()
    floor: Finite | None = None
    period: Count | None = None


class PolicyForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy with settings other than the usual ones."""

    name: Text
    settings: dict[Text, Setting] = {}


class CreateForm(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router to be made.

    wait: seconds within which a reward counts; default: what counts if none came in that time;
    aggregate: which of several keyed rewards counts; max_contexts: 1,000 if left out, or as many as
    the policy has room for
    """

    name: Name
    problem: ProblemForm
    policy: Text | PolicyForm = "auto"
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0
    horizon: Count | None = None
    rewards: tuple[Finite, Finite] = (0.0, 1.0)
    max_contexts: Annotated[int, Meta(ge=1, le=limits.CONTEXTS)] | None = None
    memory: Annotated[int, Meta(ge=1, le=limits.MEMORY)] = 100_000
    wait: Seconds | None = None
    default: Finite | None = None
    aggregate: Aggregate = "earliest"


class NewExpert(Struct, frozen=True, forbid_unknown_fields=True):
    """An expert to be added: what it costs, and the shares that it is a member of."""

    name: Label
    costs: Spend = {}
    shares: Annotated[tuple[Label, ...], Meta(max_length=limits.LIMITS)] = ()


NewExperts = Annotated[tuple[NewExpert, ...], Meta(max_length=limits.EXPERTS)]


class EditForm(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Other terms for a router that runs; what is left out stays.

    version: that of the terms that are edited; 409 if they are others by now
    limits:  all limits, in place of those there are
    """

    version: Count | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    add: NewExperts = ()
    remove: Experts = ()
    pause: Experts = ()
    resume: Experts = ()
    wait: Seconds | UnsetType | None = UNSET
    default: Finite | UnsetType | None = UNSET
    aggregate: Aggregate | UnsetType = UNSET


class AskForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision to be made.

    available: the experts that are up now, all if left out; key: the caller's own name for it, also
    as header Idempotency-Key: the same again is the same decision; defer: its time begins when it
    is activated
    """

    context: Text | None = None
    available: Experts | None = None
    key: Key | None = None
    defer: bool = False


class RewardForm(Struct, frozen=True, forbid_unknown_fields=True):
    """How well a decision went.

    spend: what its panel really cost; key: which of several rewards
    """

    value: float
    spend: Spend | None = None
    key: Key | None = None


class BatchReward(Struct, frozen=True, forbid_unknown_fields=True):
    """A reward, and whose it is."""

    decision: Annotated[str, Meta(max_length=limits.TEXT)]
    value: float
    spend: Spend | None = None
    key: Key | None = None


class AskBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions of one router."""

    decisions: Annotated[tuple[AskForm, ...], Meta(min_length=1, max_length=limits.ITEMS)]


class RewardBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards, of any routers."""

    rewards: Annotated[tuple[BatchReward, ...], Meta(min_length=1, max_length=limits.ITEMS)]


class DecisionResult(Struct, frozen=True, omit_defaults=True):
    """What became of one item: the status that it would have had alone, and its answer."""

    status: int
    decision: Decision | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class RewardResult(Struct, frozen=True, omit_defaults=True):
    """What became of one item: the status that it would have had alone, and its answer."""

    status: int
    credited: Credited | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class DecisionResults(Struct, frozen=True):
    """One for every item, in order."""

    results: tuple[DecisionResult, ...]


class RewardResults(Struct, frozen=True):
    """One for every item, in order."""

    results: tuple[RewardResult, ...]


class RouterItem(Struct, frozen=True):
    """A router of the list."""

    name: str
    number: int
    created: str  # RFC 3339, UTC


class RouterPage(Struct, frozen=True):
    """Routers by name; next: what to give as `after` for those that follow, null at the end."""

    routers: tuple[RouterItem, ...]
    next: str | None


class EventLine(Struct, frozen=True):
    """A line of a router's log; of: the line of the decision that it speaks of."""

    seq: int
    kind: Literal["created", "decided", "rewarded", "activated", "cancelled", "closed", "edited"]
    of: int | None
    key: str | None
    at: str  # RFC 3339, UTC
    body: Any
    seal: str


class EventPage(Struct, frozen=True):
    """Lines in order; next: what to give as `after` for those that follow, null at the end."""

    events: tuple[EventLine, ...]
    next: int | None


class RoutersAfter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the list."""

    after: Annotated[str, Meta(max_length=63, pattern=limits.PRINTABLE)] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class EventsAfter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the log."""

    after: Annotated[int, Meta(ge=-1, lt=2**62)] = -1
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class Health(Struct, frozen=True):
    """The server is there."""

    status: Literal["up", "ready"]
