"""The requests of the API as data, and how their responses are read; sending is left to others."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import uuid4

import msgspec
from msgspec import UNSET, structs

from bylot import api, errors, policies
from bylot._scopes import KeyArguments
from bylot.errors import (
    BudgetSpent,
    BylotError,
    DecisionError,
    ProblemError,
    RewardError,
    ServiceError,
)
from bylot.policies.registry import describe_smaller_panels
from bylot.policies.validation import FeedbackKind
from bylot.problem import Limit, Problem
from bylot.problem.limits import check_limit_list
from bylot.router.config import RouterConfig, problem_to_data
from bylot.router.decision import Decision, Receipt
from bylot.router.feedback import SpendReport
from bylot.router.past_rounds import PastRound
from bylot.router.reward_rules import RewardAggregation
from bylot.router.status import RouterStatus

AnswerT = TypeVar("AnswerT")

ROUTERS_PATH = "/v1/routers"
PAGE_ITEMS = 1_000  # of a list or an event log in one response
ERROR_BY_CODE = {code: kind for kind, _, code in api.ERROR_CODES}


class HttpCall(NamedTuple, Generic[AnswerT]):
    """A request.

    read:       decodes the body of a success
    invalid:    the error to raise if the server rejects the request as invalid
    idempotent: sending it twice has the effect of once; otherwise it is sent again only if it never
                arrived
    slow:       may take long, since the server checks whether the policy can keep all limits
    """

    method: str
    path: str
    read: Callable[[bytes], AnswerT]
    body: bytes | None = None
    invalid: type[BylotError] = ServiceError
    idempotent: bool = True
    slow: bool = False


class CreateOptions(TypedDict, total=False):
    """Optional arguments of `Client.create`."""

    seed: int
    horizon: int | None
    rewards: tuple[float, float]
    feedback: FeedbackKind
    wait: float | None
    default: float | None
    aggregate: RewardAggregation
    max_contexts: int | None
    memory: int


class EditOptions(TypedDict, total=False):
    """Arguments of `RemoteRouter.edit`; what is omitted stays as it is."""

    limits: Sequence[Limit]
    add: Sequence[Mapping[str, Any]]
    remove: Sequence[str]
    pause: Sequence[str]
    resume: Sequence[str]
    min_draws: int | None
    wait: float | None
    default: float | None
    aggregate: RewardAggregation
    max_contexts: int
    version: int


def encode_body(body: Any, invalid: type[BylotError]) -> bytes:
    """A body as JSON; NumPy numbers are numbers."""

    def encode_numpy(value: Any) -> Any:
        if not hasattr(value, "tolist"):
            raise TypeError(f"{value!r} is neither a number nor text")
        return value.tolist()

    try:
        return msgspec.json.encode(body, enc_hook=encode_numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"cannot encode the request: {error}") from None


def read_as(kind: type[AnswerT], body: bytes) -> AnswerT:
    """Decode a response; unknown fields are ignored."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ServiceError(
            f"unexpected response ({error})",
            remedy="check that it is a bylot server of the same version",
        ) from None


read_decision = partial(read_as, Decision)
read_tenant = partial(read_as, api.TenantView)


def decode_error(body: bytes) -> api.ErrorDetail | None:
    """The error of a response, None if it is not from bylot."""
    try:
        return msgspec.json.decode(body, type=api.ErrorBody).error
    except msgspec.MsgspecError:
        return None


def make_error(
    status: int, detail: api.ErrorDetail | None, invalid: type[BylotError]
) -> BylotError:
    """The exception for an error response; `invalid` is for invalid requests."""
    if detail is None:
        remedy = "check that the address is that of a bylot server"
        return ServiceError(f"unexpected response with status {status}", remedy=remedy)
    if detail.code == "budget_spent":
        resets_at = detail.resets_at or 0  # servers before `resets_at` do not send it
        reset_s = max(resets_at / 1e6 - time.time(), 0.0) if resets_at else None
        return BudgetSpent(
            detail.message, resets_at=resets_at, reset_s=reset_s, field=detail.field or None
        )
    field = "" if detail.field is UNSET else f" (in {detail.field})"
    if detail.code in ERROR_BY_CODE:
        return ERROR_BY_CODE[detail.code](detail.message + field)
    if status in (401, 403):
        return errors.AccessDenied(detail.message)
    return (invalid if status in (400, 422) else ServiceError)(detail.message + field)


def receipt_from_result(result: api.RewardResult) -> Receipt | BylotError:
    """The receipt of a batch item, or the error that it would have raised on its own."""
    if result.credited:
        return Receipt(result.credited.receipt)
    return make_error(result.status, result.error or None, RewardError)


def create_router(
    name: str,
    problem: Problem,
    policy: "str | policies.Policy | policies.Auto",
    options: CreateOptions,
) -> HttpCall[RouterConfig]:
    smaller = describe_smaller_panels(policies.find_policy(policy), problem)
    if smaller is not None:
        warnings.warn(smaller, stacklevel=3)
    body: dict[str, Any] = {"name": name, "policy": policy, **options}
    if not isinstance(policy, str):
        data = policies.policy_to_data(policies.find_policy(policy))
        body["policy"] = {"name": data.pop("name"), "settings": data}
    body["problem"] = problem_to_data(problem)
    return configure("POST", ROUTERS_PATH, body)


def configure(method: str, path: str, body: Any) -> HttpCall[RouterConfig]:
    """Create or edit a router."""
    content = encode_body(body, ProblemError)
    return HttpCall(method, path, read_config, content, ProblemError, idempotent=False, slow=True)


def read_config(body: bytes) -> RouterConfig:
    """The configuration in the response about a router."""
    return read_as(api.RouterView, body).config


def list_routers(after: str) -> HttpCall[api.RouterList]:
    """A page of the list of routers."""
    path = f"{ROUTERS_PATH}?after={quote(after, safe='')}&limit={PAGE_ITEMS}"
    return HttpCall("GET", path, partial(read_as, api.RouterList))


class RouterCalls:
    """The requests about one router, which `RemoteRouter` and `AsyncRouter` send."""

    def __init__(self, name: str) -> None:
        self.path = f"{ROUTERS_PATH}/{quote(name, safe='')}"

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
        **names: Unpack[KeyArguments],
    ) -> HttpCall[Decision]:
        """Draw a panel for one request.

        Parameters
        ----------
        context : str, optional
            Name of the context.
        available : iterable of str, optional
            The experts that are available now; all if omitted.
        key : str, optional
            Idempotency key: the same key returns the same decision.
        defer : bool
            The decision may be cancelled; it waits for its reward once it is activated.
        **names
            Whose limits count the request too: ``tenant="acme"`` is needed if there are limits with
            scope='tenant', and not allowed if there are none.

        Returns
        -------
        Decision

        Raises
        ------
        TenantError
            If the router has limits for each tenant and none is named, or the other way round.
        BudgetSpent
            If a budget of the calendar leaves no panel until its window ends.
        """
        if available is not None and not isinstance(available, str):  # the server rejects a str
            available = tuple(available)
        key = key or uuid4().hex  # sent again after a lost response, it returns the same decision
        asked: Any = available
        body = encode_body(api.DecisionRequest(context, asked, key, defer, **names), DecisionError)
        return HttpCall("POST", f"{self.path}/decisions", read_decision, body, DecisionError)

    def reward(
        self,
        id: str,
        value: float | None = None,
        *,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: SpendReport | None = None,
        key: str | None = None,
    ) -> HttpCall[Receipt]:
        """Report the reward of a decision, or only what it cost: once, at any time, in any order.

        Parameters
        ----------
        id : str
            Id of the decision.
        value : float, optional
            The reward, in the range of the router; without it, the best of the scores of members.
        members : mapping, optional
            Scores of members by name, if the feedback of the router is 'members'.
        winner : str, optional
            The member that earned the reward, if the feedback of the router is 'winner'.
        spend : mapping, optional
            Actual costs by name, each a total of the panel or a cost for every member; omitted
            costs stay as stated. Without value, members and winner, they are booked, and a
            reward may still come; a key has one reward and one report of costs alone.
        key : str, optional
            Identifies one of several reports about the decision.

        Returns
        -------
        Receipt
            DUPLICATE if the report had arrived before, such as before a lost response; SETTLED
            if it was of costs only.

        Raises
        ------
        DecisionNotFound
            If the server has no such decision. (`bylot.Router`, which keeps its decisions in
            memory, returns UNKNOWN.)
        """
        if not isinstance(id, str):
            raise RewardError("id", got=id, expected="a str", remedy="pass decision.id")
        given = {"value": value, "members": members, "winner": winner, "spend": spend, "key": key}
        request = {name: one for name, one in given.items() if one is not None}
        return HttpCall(
            "POST",
            f"/v1/decisions/{quote(id, safe='')}/reward",
            lambda body: Receipt(read_as(api.RewardReceipt, body).receipt),
            encode_body(request, RewardError),
            RewardError,
        )

    def decide_many(
        self, items: Iterable[api.DecisionRequest]
    ) -> HttpCall[list[Decision | BylotError]]:
        """Make several decisions at once; returns a decision or an error for each."""
        keyed = [structs.replace(item, key=item.key or uuid4().hex) for item in items]
        return HttpCall(
            "POST",
            f"{self.path}/decisions:batch",
            lambda body: [
                one.decision or make_error(one.status, one.error or None, DecisionError)
                for one in read_as(api.DecisionBatchResponse, body).results
            ],
            encode_body({"decisions": keyed}, DecisionError),
            DecisionError,
        )

    def reward_many(self, items: Iterable[api.RewardItem]) -> HttpCall[list[Receipt | BylotError]]:
        """Report several rewards at once; returns a receipt or an error for each."""
        return HttpCall(
            "POST",
            "/v1/rewards:batch",
            lambda body: [
                receipt_from_result(one) for one in read_as(api.RewardBatchResponse, body).results
            ],
            encode_body({"rewards": list(items)}, RewardError),
            RewardError,
        )

    def replace(
        self, id: str, failed: str, available: Iterable[str] | None = None
    ) -> HttpCall[Decision]:
        """Draw another expert in place of a member that failed, at no cost to any limit.

        Parameters
        ----------
        id : str
            Id of the decision, of which nothing was reported yet.
        failed : str
            The member; the same one again returns the decision as it is.
        available : iterable of str, optional
            The experts that are available now; all if omitted.

        Returns
        -------
        Decision
            With the new panel and its cost, and without probabilities.

        Raises
        ------
        NoSubstitute
            If nobody can take its place; the panel stays.
        DecisionStateError
            If the decision does not wait for its first report; DecisionInUse if it is one of the
            gateway.
        """
        if available is not None and not isinstance(available, str):  # the server rejects a str
            available = tuple(available)
        request = api.ReplaceRequest(failed, available)  # type: ignore[arg-type]
        path = f"/v1/decisions/{quote(id, safe='')}/replace"
        body = encode_body(request, DecisionError)
        return HttpCall("POST", path, read_decision, body, DecisionError)

    def activate(self, id: str) -> HttpCall[Decision]:
        """Activate a deferred decision: it waits for its reward from now on."""
        return change_decision(id, "activate")

    def cancel(self, id: str) -> HttpCall[Decision]:
        """Cancel a decision that was never used: it costs nothing and has no reward."""
        return change_decision(id, "cancel")

    def tenant(self, tenant: str) -> HttpCall[api.TenantView]:
        """Say what a tenant has spent in the current windows of the limits for each tenant.

        Parameters
        ----------
        tenant : str
            The name of the tenant; one that is not known has spent nothing.

        Returns
        -------
        TenantView
            Its `windows` are one for each limit with scope='tenant'.
        """
        path = f"{self.path}/tenants/{quote_segment(tenant)}"
        return HttpCall("GET", path, read_tenant, invalid=DecisionError)

    def list_tenants(self, after: str, limit: int = PAGE_ITEMS) -> HttpCall[api.TenantList]:
        """A page of the list of tenants."""
        path = f"{self.path}/tenants?after={quote(after, safe='')}&limit={limit}"
        return HttpCall("GET", path, partial(read_as, api.TenantList), invalid=DecisionError)

    def set_tenant(self, tenant: str, limits: Iterable[Limit] = ()) -> HttpCall[api.TenantView]:
        """Give a tenant bounds of its own.

        Parameters
        ----------
        tenant : str
            The name of the tenant.
        limits : iterable of Limit
            Budgets of the router with scope='tenant', with the bounds of this tenant, such as
            ``[at_most("usd", 50, per="month", scope="tenant")]``. They replace those that it had;
            without any, the bounds of all tenants apply to it.

        Returns
        -------
        TenantView
            What it has spent, and its bounds.

        Raises
        ------
        TenantError
            If the router has no such limits.
        """
        path = f"{self.path}/tenants/{quote_segment(tenant)}"
        own = [limit.to_data() for limit in check_limit_list(limits)]
        body = encode_body({"limits": own}, ProblemError)
        return HttpCall("PUT", path, read_tenant, body, ProblemError)

    def view(self) -> HttpCall[api.RouterView]:
        """The configuration and the status."""
        return HttpCall("GET", self.path, partial(read_as, api.RouterView))

    def status(self) -> HttpCall[RouterStatus]:
        """Averages, slack and price of every limit, current distributions."""
        return HttpCall("GET", f"{self.path}/status", partial(read_as, RouterStatus))

    def config(self) -> HttpCall[RouterConfig]:
        """The current configuration."""
        return HttpCall("GET", self.path, read_config)

    def edit(self, **options: Unpack[EditOptions]) -> HttpCall[RouterConfig]:
        """Edit the configuration, from the next decision on; omitted fields stay as they are.

        Parameters
        ----------
        limits : sequence of Limit
            The complete list of limits, which replaces the current one.
        add : sequence of dict
            New experts as in problem files: {"name": "zoe", "usd": 2.5, "group": ["junior"]}.
        remove, pause, resume : sequence of str
            Experts to remove, to skip for now, or to ask again.
        wait, default, aggregate, max_contexts
            As in `Client.create`; `max_contexts` can only be raised.
        version : int
            The version that you have seen; DecisionStateError if there is another one by now.

        Returns
        -------
        RouterConfig
            The new configuration.
        """
        body: dict[str, Any] = {**options}
        if "limits" in body:
            body["limits"] = [limit.to_data() for limit in check_limit_list(body["limits"])]
        return configure("PATCH", self.path, body)

    def learn_rounds(self, rounds: Sequence[PastRound], after: int) -> HttpCall[api.RouterView]:
        """Learn rounds of a log before the first decision; `after` others were learned before."""
        body = encode_body({"rounds": rounds, "after": after}, RewardError)
        read = partial(read_as, api.RouterView)
        return HttpCall("POST", f"{self.path}/rounds", read, body, RewardError, slow=True)

    def delete(self) -> HttpCall[None]:
        """Delete the router and its event log."""
        return HttpCall("DELETE", self.path, lambda body: None, idempotent=False)

    def list_events(self, after: int, limit: int = PAGE_ITEMS) -> HttpCall[api.EventList]:
        """A page of the event log."""
        path = f"{self.path}/events?after={after}&limit={limit}"
        return HttpCall("GET", path, partial(read_as, api.EventList))


def quote_segment(text: str) -> str:
    """A text as a part of a path; clients and proxies would resolve . and ..

    >>> quote_segment("acme/europe"), quote_segment("..")
    ('acme%2Feurope', '%2E%2E')
    """
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if text in (".", "..") else quoted


def change_decision(id: str, verb: str) -> HttpCall[Decision]:
    path = f"/v1/decisions/{quote(id, safe='')}/{verb}"
    return HttpCall("POST", path, read_decision, invalid=DecisionError, idempotent=False)
