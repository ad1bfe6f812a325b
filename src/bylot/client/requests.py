"""The requests of the API as data, and how their responses are read; sending is left to others."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
from msgspec import UNSET, structs

from bylot import api, errors, policies
from bylot.errors import BylotError, DecisionError, ProblemError, RewardError, ServiceError
from bylot.problem import Limit, Problem
from bylot.router import persistence
from bylot.router.config import RewardAggregation, RouterConfig
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus

AnswerT = TypeVar("AnswerT")
WireT = TypeVar("WireT")

ROUTERS_PATH = "/v1/routers"
PAGE_ITEMS = 1_000  # of a list or an event log in one response
ERROR_BY_CODE: dict[str, type[BylotError]] = {
    **{code: kind for kind, _, code in api.ERROR_CODES},
    "router_busy": errors.RouterBusy,
}
ERROR_DECODER = msgspec.json.Decoder(api.ErrorBody)


class HttpCall(NamedTuple, Generic[AnswerT]):
    """A request.

    read:       decodes the body of a success
    idempotent: sending it twice has the effect of once; otherwise it is sent again only if it never
                arrived
    invalid:    the error to raise if the server rejects the request as invalid
    answers:    error codes that are answers
    slow:       may take minutes, since the server may have to compile a policy
    """

    method: str
    path: str
    read: Callable[[bytes], AnswerT]
    body: bytes | None = None
    idempotent: bool = True
    invalid: type[BylotError] = ServiceError
    answers: Mapping[str, AnswerT] = MappingProxyType({})
    slow: bool = False


class CreateOptions(TypedDict, total=False):
    """Optional arguments of `Client.create`."""

    seed: int
    horizon: int | None
    rewards: tuple[float, float]
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
    wait: float | None
    default: float | None
    aggregate: RewardAggregation
    version: int


def encode_body(body: Any, invalid: type[BylotError]) -> bytes:
    """A body as JSON; NumPy numbers are numbers."""
    try:
        return msgspec.json.encode(body, enc_hook=encode_numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"cannot encode the request: {error}") from None


def encode_numpy(value: Any) -> Any:
    """A NumPy scalar or array as Python numbers."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{value!r} is neither a number nor text")
    return value.tolist()


def response_reader(
    kind: type[WireT], convert: Callable[[WireT], AnswerT], has_costs: bool = False
) -> Callable[[bytes], AnswerT]:
    """A function that decodes a response and converts it; unknown fields are ignored.

    has_costs: the response contains decisions, whose unknown costs are null in JSON
    """
    decoder = msgspec.json.Decoder(kind)

    def read(body: bytes) -> AnswerT:
        try:
            if has_costs and b"null" in body:
                return convert(msgspec.convert(restore_nan(msgspec.json.decode(body)), kind))
            return convert(decoder.decode(body))
        except msgspec.MsgspecError as error:
            raise ServiceError(
                f"unexpected response ({error})",
                remedy="check that it is a bylot server of the same version",
            ) from None

    return read


def restore_nan(data: Any) -> Any:
    """Replace null by NaN in the costs of a decision or of a batch: JSON has no NaN."""
    if isinstance(data, dict):
        for result in data.get("results") or ():
            if isinstance(result, dict):
                restore_nan(result.get("decision"))
        for name in ("spend", "expected"):
            costs = data.get(name)
            if isinstance(costs, dict):
                data[name] = {k: math.nan if v is None else v for k, v in costs.items()}
    return data


def decode_error(body: bytes) -> api.ErrorDetail | None:
    """The error of a response, None if it is not from bylot."""
    try:
        return ERROR_DECODER.decode(body).error
    except msgspec.MsgspecError:
        return None


def make_error(
    status: int, detail: api.ErrorDetail | None, invalid: type[BylotError]
) -> BylotError:
    """The exception for an error response; `invalid` is for invalid requests."""
    if detail is None:
        return ServiceError(
            f"unexpected response with status {status}",
            remedy="check that the address is that of a bylot server",
        )
    field = "" if detail.field is UNSET else f" (in {detail.field})"
    if detail.code in ERROR_BY_CODE:
        return ERROR_BY_CODE[detail.code](detail.message + field)
    if status in (401, 403):
        return errors.AccessDenied(detail.message)
    return (invalid if status in (400, 422) else ServiceError)(detail.message + field)


def router_path(name: str) -> str:
    """The path of a router."""
    return f"{ROUTERS_PATH}/{quote(name, safe='')}"


def decision_path(id: str) -> str:
    """The path of a decision."""
    return f"/v1/decisions/{quote(id, safe='')}"


def decision_from_result(result: api.DecisionResult) -> Decision | BylotError:
    """The decision of a batch item, or the error that it would have raised on its own."""
    if result.decision is not UNSET:
        return result.decision
    detail = None if result.error is UNSET else result.error
    return make_error(result.status, detail, DecisionError)


def receipt_from_result(result: api.RewardResult) -> Receipt | BylotError:
    """The receipt of a batch item, or the error that it would have raised on its own."""
    if result.credited is not UNSET:
        return Receipt(result.credited.receipt)
    detail = None if result.error is UNSET else result.error
    if detail is not None and detail.code == "no_such_decision":
        return Receipt.UNKNOWN
    return make_error(result.status, detail, RewardError)


read_decision = response_reader(Decision, lambda decision: decision, has_costs=True)
read_config = response_reader(api.RouterView, lambda view: view.config)
read_view = response_reader(api.RouterView, lambda view: view)
read_routers = response_reader(api.RouterList, lambda page: page)
read_events = response_reader(api.EventList, lambda page: page)
read_receipt = response_reader(api.RewardReceipt, lambda one: Receipt(one.receipt))
read_decisions = response_reader(
    api.DecisionBatchResponse,
    lambda page: [decision_from_result(one) for one in page.results],
    has_costs=True,
)
read_receipts = response_reader(
    api.RewardBatchResponse, lambda page: [receipt_from_result(one) for one in page.results]
)
read_status: Callable[[bytes], RouterStatus] = response_reader(RouterStatus, lambda one: one)


def create_router(
    name: str,
    problem: Problem,
    policy: "str | policies.Policy | policies.Auto",
    options: CreateOptions,
) -> HttpCall[RouterConfig]:
    """Create a router."""
    if not isinstance(policy, str):
        data = policies.policy_to_data(policies.find_policy(policy))
        body_policy: Any = {"name": data.pop("name"), "settings": data}
    else:
        body_policy = policy
    form = {"problem": persistence.problem_to_data(problem), "policy": body_policy, **options}
    body = encode_body({"name": name, **form}, ProblemError)
    return HttpCall("POST", ROUTERS_PATH, read_config, body, False, invalid=ProblemError, slow=True)


def edit_router(name: str, options: EditOptions) -> HttpCall[RouterConfig]:
    """Edit the configuration of a router."""
    form: dict[str, Any] = {**options}
    if "limits" in form:
        form["limits"] = [limit.to_data() for limit in form["limits"]]
    body = encode_body(form, ProblemError)
    path = router_path(name)
    return HttpCall("PATCH", path, read_config, body, False, invalid=ProblemError, slow=True)


def list_routers(after: str) -> HttpCall[api.RouterList]:
    """A page of the list of routers."""
    path = f"{ROUTERS_PATH}?after={quote(after, safe='')}&limit={PAGE_ITEMS}"
    return HttpCall("GET", path, read_routers)


def get_config(name: str) -> HttpCall[RouterConfig]:
    """The configuration of a router."""
    return HttpCall("GET", router_path(name), read_config)


def get_view(name: str) -> HttpCall[api.RouterView]:
    """The configuration and the status of a router."""
    return HttpCall("GET", router_path(name), read_view)


def get_status(name: str) -> HttpCall[RouterStatus]:
    """The status of a router."""
    return HttpCall("GET", f"{router_path(name)}/status", read_status)


def delete_router(name: str) -> HttpCall[None]:
    """Delete a router."""
    return HttpCall("DELETE", router_path(name), lambda body: None, idempotent=False)


def list_events(name: str, after: int, limit: int = PAGE_ITEMS) -> HttpCall[api.EventList]:
    """A page of an event log."""
    return HttpCall("GET", f"{router_path(name)}/events?after={after}&limit={limit}", read_events)


def with_key(request: api.DecisionRequest) -> api.DecisionRequest:
    """The request with a key: sent again after a lost response, it returns the same decision."""
    return structs.replace(request, key=request.key or uuid4().hex)


def decide(name: str, request: api.DecisionRequest) -> HttpCall[Decision]:
    """Make a decision."""
    body = encode_body(with_key(request), DecisionError)
    path = f"{router_path(name)}/decisions"
    return HttpCall("POST", path, read_decision, body, invalid=DecisionError)


def decide_many(
    name: str, requests: Iterable[api.DecisionRequest]
) -> HttpCall[list[Decision | BylotError]]:
    """Make several decisions."""
    body = encode_body({"decisions": [with_key(one) for one in requests]}, DecisionError)
    path = f"{router_path(name)}/decisions:batch"
    return HttpCall("POST", path, read_decisions, body, invalid=DecisionError)


def reward(id: str, request: api.RewardRequest) -> HttpCall[Receipt]:
    """Report a reward."""
    if not isinstance(id, str):
        raise RewardError("id", got=id, expected="a str", remedy="pass decision.id")
    body = encode_body(request, RewardError)
    answers = {"no_such_decision": Receipt.UNKNOWN}
    path = f"{decision_path(id)}/reward"
    return HttpCall("POST", path, read_receipt, body, invalid=RewardError, answers=answers)


def reward_many(items: Iterable[api.RewardItem]) -> HttpCall[list[Receipt | BylotError]]:
    """Report several rewards."""
    body = encode_body({"rewards": list(items)}, RewardError)
    return HttpCall("POST", "/v1/rewards:batch", read_receipts, body, invalid=RewardError)


def activate(id: str) -> HttpCall[Decision]:
    """Activate a deferred decision."""
    path = f"{decision_path(id)}/activate"
    return HttpCall("POST", path, read_decision, idempotent=False, invalid=DecisionError)


def cancel(id: str) -> HttpCall[Decision]:
    """Cancel a decision."""
    path = f"{decision_path(id)}/cancel"
    return HttpCall("POST", path, read_decision, idempotent=False, invalid=DecisionError)
