"""What requests and answers look like; the OpenAPI document is made from these."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from bylot.eventlog.commands import RewardReceipt, StoredDecision
from bylot.router.config import RewardAggregation
from bylot.server import request_parsing
from bylot.server.http_errors import ErrorDetail

FiniteFloat = Annotated[float, Meta(ge=-1e300, le=1e300)]
WaitSeconds = Annotated[float, Meta(gt=0, le=1e9)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**53)]
ShortText = Annotated[
    str, Meta(max_length=request_parsing.MAX_TEXT_CHARS, pattern=request_parsing.PRINTABLE_PATTERN)
]
LabelText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=request_parsing.MAX_TEXT_CHARS,
        pattern=request_parsing.PRINTABLE_PATTERN,
    ),
]
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1, max_length=request_parsing.MAX_TEXT_CHARS, pattern=request_parsing.KEY_PATTERN
    ),
]
RouterName = Annotated[str, Meta(min_length=1, max_length=63, pattern=request_parsing.NAME_PATTERN)]
ExpertNames = Annotated[tuple[LabelText, ...], Meta(max_length=request_parsing.MAX_EXPERTS)]
SpendByCost = Annotated[dict[LabelText, FiniteFloat], Meta(max_length=request_parsing.MAX_COSTS)]
CostRow = Annotated[tuple[FiniteFloat, ...], Meta(max_length=request_parsing.MAX_EXPERTS)]
CostTable = Annotated[dict[LabelText, CostRow], Meta(max_length=request_parsing.MAX_COSTS)]
PolicySetting = bool | int | float | ShortText | None | dict[ShortText, int | float | ShortText]


class LimitBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A bound on a long-run average: of a `cost`, or of the `share` of some `members`; either
    `at_most` or `at_least`.
    """

    cost: LabelText | UnsetType = UNSET
    share: LabelText | UnsetType = UNSET
    members: ExpertNames | UnsetType = UNSET
    at_most: FiniteFloat | UnsetType = UNSET
    at_least: FiniteFloat | UnsetType = UNSET


LimitBodies = Annotated[tuple[LimitBody, ...], Meta(max_length=request_parsing.MAX_LIMITS)]


class ProblemBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to choose from, what asking each of them costs, and what is promised.

    draws: experts of a panel; floor: the least chance of each; period: decisions at whose end the
    limits hold
    """

    experts: Annotated[
        tuple[LabelText, ...], Meta(min_length=1, max_length=request_parsing.MAX_EXPERTS)
    ]
    draws: Annotated[int, Meta(ge=1, le=request_parsing.MAX_DRAWS)]
    costs: CostTable = {}
    limits: LimitBodies = ()
    floor: FiniteFloat | None = None
    period: PositiveCount | None = None


class PolicyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy with settings other than the usual ones."""

    name: ShortText
    settings: dict[ShortText, PolicySetting] = {}


class CreateRouterRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router to be made.

    wait: seconds within which a reward counts; default: what counts if none came in that time;
    aggregate: which of several keyed rewards counts; max_contexts: 1,000 if left out, or as many as
    the policy has room for
    """

    name: RouterName
    problem: ProblemBody
    policy: ShortText | PolicyBody = "auto"
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0
    horizon: PositiveCount | None = None
    rewards: tuple[FiniteFloat, FiniteFloat] = (0.0, 1.0)
    max_contexts: Annotated[int, Meta(ge=1, le=request_parsing.MAX_CONTEXTS)] | None = None
    memory: Annotated[int, Meta(ge=1, le=request_parsing.MAX_HELD_DECISIONS)] = 100_000
    wait: WaitSeconds | None = None
    default: FiniteFloat | None = None
    aggregate: RewardAggregation = "earliest"


class NewExpert(Struct, frozen=True, forbid_unknown_fields=True):
    """An expert to be added: what it costs, and the shares that it is a member of."""

    name: LabelText
    costs: SpendByCost = {}
    shares: Annotated[tuple[LabelText, ...], Meta(max_length=request_parsing.MAX_LIMITS)] = ()


NewExperts = Annotated[tuple[NewExpert, ...], Meta(max_length=request_parsing.MAX_EXPERTS)]


class EditRouterRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Other terms for a router that runs; what is left out stays.

    version: that of the terms that are edited; 409 if they are others by now
    limits:  all limits, in place of those there are
    """

    version: PositiveCount | UnsetType = UNSET
    limits: LimitBodies | UnsetType = UNSET
    add: NewExperts = ()
    remove: ExpertNames = ()
    pause: ExpertNames = ()
    resume: ExpertNames = ()
    wait: WaitSeconds | UnsetType | None = UNSET
    default: FiniteFloat | UnsetType | None = UNSET
    aggregate: RewardAggregation | UnsetType = UNSET


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision to be made.

    available: the experts that are up now, all if left out; key: the caller's own name for it, also
    as header Idempotency-Key: the same again is the same decision; defer: its time begins when it
    is activated
    """

    context: ShortText | None = None
    available: ExpertNames | None = None
    key: IdempotencyKey | None = None
    defer: bool = False


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How well a decision went.

    spend: what its panel really cost; key: which of several rewards
    """

    value: float
    spend: SpendByCost | None = None
    key: IdempotencyKey | None = None


class RewardItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A reward, and whose it is."""

    decision: Annotated[str, Meta(max_length=request_parsing.MAX_TEXT_CHARS)]
    value: float
    spend: SpendByCost | None = None
    key: IdempotencyKey | None = None


class DecisionBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions of one router."""

    decisions: Annotated[
        tuple[DecisionRequest, ...], Meta(min_length=1, max_length=request_parsing.MAX_BATCH_ITEMS)
    ]


class RewardBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards, of any routers."""

    rewards: Annotated[
        tuple[RewardItem, ...], Meta(min_length=1, max_length=request_parsing.MAX_BATCH_ITEMS)
    ]


class DecisionResult(Struct, frozen=True, omit_defaults=True):
    """What became of one item: the status that it would have had alone, and its answer."""

    status: int
    decision: StoredDecision | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class RewardResult(Struct, frozen=True, omit_defaults=True):
    """What became of one item: the status that it would have had alone, and its answer."""

    status: int
    credited: RewardReceipt | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class DecisionBatchResponse(Struct, frozen=True):
    """One for every item, in order."""

    results: tuple[DecisionResult, ...]


class RewardBatchResponse(Struct, frozen=True):
    """One for every item, in order."""

    results: tuple[RewardResult, ...]


class RouterSummary(Struct, frozen=True):
    """A router of the list."""

    name: str
    number: int
    created: str  # RFC 3339, UTC


class RouterList(Struct, frozen=True):
    """Routers by name; next: what to give as `after` for those that follow, null at the end."""

    routers: tuple[RouterSummary, ...]
    next: str | None


class EventRecord(Struct, frozen=True):
    """A line of a router's log; of: the line of the decision that it speaks of."""

    seq: int
    kind: Literal["created", "decided", "rewarded", "activated", "cancelled", "closed", "edited"]
    of: int | None
    key: str | None
    at: str  # RFC 3339, UTC
    body: Any
    seal: str


class EventList(Struct, frozen=True):
    """Lines in order; next: what to give as `after` for those that follow, null at the end."""

    events: tuple[EventRecord, ...]
    next: int | None


class RouterListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the list."""

    after: Annotated[str, Meta(max_length=63, pattern=request_parsing.PRINTABLE_PATTERN)] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class EventListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the log."""

    after: Annotated[int, Meta(ge=-1, lt=2**62)] = -1
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class HealthResponse(Struct, frozen=True):
    """The server is there."""

    status: Literal["up", "ready"]
