"""Types that cross the wire: what server and client send each other.

The OpenAPI document is generated from these types. How requests are routed and answered is left to
`bylot.server`, how they are sent to `bylot.client`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bylot import errors
from bylot.limits.keys import TenantWindow
from bylot.policies.validation import FeedbackKind
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision, DecisionState
from bylot.router.decision import ReceiptName as ReceiptName
from bylot.router.past_rounds import PastRound
from bylot.router.reward_rules import RewardAggregation
from bylot.router.status import RouterStatus

MAX_TEXT_CHARS = 200  # of a context, a key or the name of an expert
MAX_EXPERTS, MAX_COSTS, MAX_LIMITS, MAX_DRAWS = 5_000, 50, 100, 1_000
MAX_CONTEXTS, MAX_HELD_DECISIONS = 100_000, 1_000_000

END_OF_TEXT = r"(?!\n)$"  # Python's $ alone also matches before a trailing line break
NAME_CHARS = r"[a-z0-9][a-z0-9_-]{0,62}"  # of a router, also within the ids of its decisions
NAME_PATTERN = rf"^{NAME_CHARS}{END_OF_TEXT}"
KEY_PATTERN = rf"^[ -~]+{END_OF_TEXT}"
UNPRINTABLE_RANGES = (  # what str.isprintable refuses, apart from unassigned code points
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001-\U000e007f"  # JSON Schema has no escapes for these
)
PRIVATE_RANGES = "\ue000-\uf8ff\U000f0000-\U0010ffff"  # apart, as fuzzers list what they exclude
PRINTABLE_PATTERN = f"^(?!.*[{PRIVATE_RANGES}])[^{UNPRINTABLE_RANGES}]*{END_OF_TEXT}"

FiniteFloat = Annotated[float, Meta(ge=-1e300, le=1e300)]
WaitSeconds = Annotated[float, Meta(gt=0, le=1e9)]
ContextCount = Annotated[int, Meta(ge=1, le=MAX_CONTEXTS)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**53)]
ShortText = Annotated[str, Meta(max_length=MAX_TEXT_CHARS, pattern=PRINTABLE_PATTERN)]
LabelText = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS, pattern=PRINTABLE_PATTERN)]
IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS, pattern=KEY_PATTERN)]
RouterName = Annotated[str, Meta(min_length=1, max_length=63, pattern=NAME_PATTERN)]
ExpertNames = Annotated[tuple[LabelText, ...], Meta(max_length=MAX_EXPERTS)]
SettingText = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
# Without a pattern: msgspec 0.22 frees a pattern twice if a dict or list is an alternative.
SpendByMember = Annotated[dict[SettingText, FiniteFloat], Meta(max_length=MAX_DRAWS)]
SpendByCost = Annotated[dict[LabelText, FiniteFloat | SpendByMember], Meta(max_length=MAX_COSTS)]
MemberScores = Annotated[dict[LabelText, float | bool], Meta(max_length=MAX_DRAWS)]
PolicySetting = bool | int | float | SettingText | None | dict[ShortText, int | float | ShortText]

BATCH_SIZE = Meta(min_length=1, max_length=1_000)
PAGE_SIZE = Meta(ge=1, le=1_000)


PROBLEM_REF = "#/components/schemas/Problem"  # the schema of problem files, also in OpenAPI
ProblemPart = dict[str, Any]
ProblemBody = Annotated[ProblemPart, Meta(extra_json_schema={"$ref": PROBLEM_REF})]
LimitBody = Annotated[ProblemPart, Meta(extra_json_schema={"$ref": f"{PROBLEM_REF}/$defs/limit"})]
NewExpert = Annotated[ProblemPart, Meta(extra_json_schema={"$ref": f"{PROBLEM_REF}/$defs/expert"})]
"""As in problem files; `bylot.problem_files` checks them."""


class PolicyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy, with the settings that differ from its defaults."""

    name: ShortText
    settings: dict[ShortText, PolicySetting] = {}


class CreateRouterRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router to create.

    problem: as in a problem file; rewards: if omitted, those of the problem, or 0 to 1;
    feedback: what will be reported: the reward of the panel, also scores of members, or also the
    winner; wait: seconds within which a reward counts; default: the reward learned if none arrives
    in that time; aggregate: which of several keyed rewards counts; max_contexts: if omitted, 1,000
    or as many as the policy supports
    """

    name: RouterName
    problem: ProblemBody
    policy: ShortText | PolicyBody = "auto"
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0
    horizon: PositiveCount | None = None
    rewards: tuple[FiniteFloat, FiniteFloat] | None = None
    feedback: FeedbackKind = "panel"
    max_contexts: ContextCount | None = None
    memory: Annotated[int, Meta(ge=1, le=MAX_HELD_DECISIONS)] = 100_000
    wait: WaitSeconds | None = None
    default: FiniteFloat | bool | None = None
    aggregate: RewardAggregation = "earliest"


class CreateRouterQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The name, policy and feedback of the router to create if the body is a problem file."""

    name: RouterName | None = None
    policy: ShortText = "auto"
    feedback: FeedbackKind = "panel"


class EditRouterRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to the configuration of a running router; omitted fields stay as they are.

    version: the version that the caller has seen; 409 if the router has another one by now
    limits:  the complete list of limits, which replaces the current one
    min_draws: the fewest members of a panel; null for as many as there are draws
    max_contexts: at least as many as now
    """

    version: PositiveCount | UnsetType = UNSET
    limits: Annotated[tuple[LimitBody, ...], Meta(max_length=MAX_LIMITS)] | UnsetType = UNSET
    add: Annotated[tuple[NewExpert, ...], Meta(max_length=MAX_EXPERTS)] = ()
    remove: ExpertNames = ()
    pause: ExpertNames = ()
    resume: ExpertNames = ()
    min_draws: Annotated[int, Meta(ge=1, le=MAX_DRAWS)] | UnsetType | None = UNSET
    wait: WaitSeconds | UnsetType | None = UNSET
    default: FiniteFloat | bool | UnsetType | None = UNSET
    aggregate: RewardAggregation | UnsetType = UNSET
    max_contexts: ContextCount | UnsetType = UNSET


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A decision to make.

    available: the experts that are available now, all if omitted; key: idempotency key, also
    accepted as header Idempotency-Key: the same request with the same key returns the same
    decision; defer: the decision starts to wait for its reward when it is activated; tenant: whose
    limits with scope tenant count the request too
    """

    context: ShortText | None = None
    available: ExpertNames | None = None
    key: IdempotencyKey | None = None
    defer: bool = False
    tenant: LabelText | None = None


class SetTenantRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The own bounds of a tenant, which replace those that it had.

    limits: budgets of the router with scope tenant, with the bounds of this tenant:
    {"cost": "usd", "at_most": 50, "per": "month"}; an empty list removes its own bounds
    """

    limits: Annotated[tuple[LimitBody, ...], Meta(max_length=MAX_LIMITS)]


class RoundItem(PastRound, frozen=True):
    """A round of a log: the panel that was asked, and what was reported about it.

    spend: actual costs of the panel by name; others: as declared
    """

    context: LabelText | None = None


class LearnRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Rounds of a log, which a router learns before its first decision.

    after: how many it has learned before; a batch that is sent again is learned once
    """

    rounds: Annotated[tuple[RoundItem, ...], BATCH_SIZE]
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0


class ReplaceRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A member of a panel that failed, in whose place another expert is to be asked.

    available: the experts that are available now, all if omitted
    """

    failed: LabelText
    available: ExpertNames | None = None


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reward of a decision, and what else is known about its panel; or its costs only.

    value: a number, or true for 1 and false for 0; if omitted, the best of the scores of members;
    spend: the actual costs by name, each a total of the panel or a cost for every member; without
    value, members and winner, the costs are booked, and a reward may still come;
    key: identifies one of several reports; members: scores of members by name, of which some may be
    missing, if the feedback of the router is members; winner: the member that earned the reward, if
    it is winner
    """

    value: float | bool | None = None
    spend: SpendByCost | None = None
    key: IdempotencyKey | None = None
    members: MemberScores | None = None
    winner: LabelText | None = None


class RewardItem(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A reward of a batch, or costs only, with the id of its decision."""

    decision: Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
    value: float | bool | None = None
    spend: SpendByCost | None = None
    key: IdempotencyKey | None = None
    members: MemberScores | None = None
    winner: LabelText | None = None


class DecisionBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions of one router."""

    decisions: Annotated[tuple[DecisionRequest, ...], BATCH_SIZE]


class RewardBatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards, of any routers."""

    rewards: Annotated[tuple[RewardItem, ...], BATCH_SIZE]


class RouterListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the list of routers: those after a name."""

    after: Annotated[str, Meta(max_length=63, pattern=PRINTABLE_PATTERN)] = ""
    limit: Annotated[int, PAGE_SIZE] = 100


class TenantListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the tenants of a router: those after a name."""

    after: ShortText = ""
    limit: Annotated[int, PAGE_SIZE] = 100


class EventListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of an event log: the events after a sequence number."""

    after: Annotated[int, Meta(ge=-1, lt=2**62)] = -1
    limit: Annotated[int, PAGE_SIZE] = 100


class RewardRecord(Struct, frozen=True, kw_only=True):
    """One reward that a decision received, and what came with it.

    value: null if only costs were reported (receipt settled); member_spend: those costs of `spend`
    that were reported by member; from_members: no value was reported, it is the best of the scores
    """

    at: str
    value: float | None
    receipt: ReceiptName
    spend: dict[str, float] | None
    key: str | None
    by: str | None
    members: dict[str, float] | None = None
    winner: str | None = None
    member_spend: dict[str, dict[str, float]] | None = None
    from_members: bool = False


class DecisionRecord(Struct, frozen=True, kw_only=True):
    """A decision and its history.

    learned: the value that was learned when the decision was closed: a reward, the aggregate of
             several, or the default; null if there is none
    learned_members, learned_winner: the scores of members, or the winner, learned with it
    """

    decision: Decision
    state: DecisionState
    rewards: tuple[RewardRecord, ...]
    learned: float | None = None
    learned_members: dict[str, float] | None = None
    learned_winner: str | None = None


class RewardReceipt(Struct, frozen=True, kw_only=True):
    """What the router did with a report; value: null if it had no reward."""

    decision: str
    receipt: ReceiptName
    value: float | None


class RouterSummary(Struct, frozen=True):
    """An entry of the list of routers."""

    name: str
    number: int
    created: str  # RFC 3339, UTC


class RouterView(RouterSummary, frozen=True):
    """A router at one moment: its configuration and its status.

    warnings: when it is created, what its operator should know, such as that panels will be small
    """

    seq: int  # of the last event of its log
    config: RouterConfig
    status: RouterStatus
    warnings: tuple[str, ...] = ()


class TenantView(Struct, frozen=True):
    """A tenant of a router in the current window of each limit with scope tenant."""

    router: str
    tenant: str
    windows: tuple[TenantWindow, ...]

    def __iter__(self) -> Iterator[TenantWindow]:
        return iter(self.windows)


class TenantList(Struct, frozen=True):
    """Tenants by name: those with bounds of their own, and those with a request in recent windows;
    next: the `after` of the next page, null on the last one.
    """

    tenants: tuple[TenantView, ...]
    next: str | None


class RouterList(Struct, frozen=True):
    """Routers by name; next: the `after` of the next page, null on the last one."""

    routers: tuple[RouterSummary, ...]
    next: str | None


class EventRecord(Struct, frozen=True):
    """An event of a router's log; of: the sequence number of the decision that it is about."""

    seq: int
    kind: str  # a key of `bylot.eventlog.events.EVENT_BODIES`
    of: int | None
    key: str | None
    at: str  # RFC 3339, UTC
    body: Raw
    seal: str


class EventList(Struct, frozen=True):
    """Events in order; next: the `after` of the next page, null on the last one."""

    events: tuple[EventRecord, ...]
    next: int | None


class HealthResponse(Struct, frozen=True):
    """The server is up, or ready to serve requests."""

    status: Literal["up", "ready"]


class ErrorDetail(Struct, frozen=True, omit_defaults=True):
    """An error: a code for programs, a message for people, the offending field of the request.

    resets_at: of a budget that is spent, the end of its window in microseconds since 1970
    """

    code: str
    message: str
    field: str | UnsetType = UNSET
    resets_at: int | UnsetType = UNSET


class ErrorBody(Struct, frozen=True):
    """The body of every response that is not a success."""

    error: ErrorDetail


class DecisionResult(Struct, frozen=True, omit_defaults=True):
    """Result of one item of a batch: the status and body it would have had on its own."""

    status: int
    decision: Decision | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class RewardResult(Struct, frozen=True, omit_defaults=True):
    """Result of one item of a batch: the status and body it would have had on its own."""

    status: int
    credited: RewardReceipt | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class DecisionBatchResponse(Struct, frozen=True):
    """One result for each item, in order."""

    results: tuple[DecisionResult, ...]


class RewardBatchResponse(Struct, frozen=True):
    """One result for each item, in order."""

    results: tuple[RewardResult, ...]


ERROR_CODES: tuple[tuple[type[errors.BylotError], int, str], ...] = (
    (errors.RouterNotFound, 404, "no_such_router"),
    (errors.DecisionNotFound, 404, "no_such_decision"),
    (errors.RouterExists, 409, "name_taken"),
    (errors.RewardConflict, 409, "reward_conflict"),
    (errors.NoSubstitute, 409, "no_substitute"),
    (errors.DecisionInUse, 409, "in_use"),
    (errors.DecisionStateError, 409, "invalid_state"),
    (errors.IdempotencyKeyReused, 422, "key_reused"),
    (errors.InfeasibleLimits, 422, "infeasible_limits"),
    (errors.ProblemError, 422, "bad_problem"),
    (errors.TenantError, 422, "bad_tenant"),
    (errors.PolicyError, 422, "bad_policy"),
    (errors.BudgetSpent, 429, "budget_spent"),
    (errors.DecisionError, 422, "bad_decision"),
    (errors.RewardError, 422, "bad_reward"),
    (errors.ValuesError, 422, "bad_values"),
    (errors.StoreUnavailable, 503, "store_down"),
    (errors.LeaseLost, 503, "lease_lost"),
    (errors.RouterBusy, 503, "router_busy"),
    (errors.PolicyCompiling, 503, "compiling"),
    (errors.StoreCorrupted, 500, "store_damaged"),
)
"""Errors with a meaning for the caller: status and code; the first class that matches counts."""
