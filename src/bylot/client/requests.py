"""Everything that a server can be asked, as calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from bylot import policies
from bylot.client import responses
from bylot.client.responses import (
    LogPage,
    RemoteConfig,
    RouterListResponse,
    RouterStatusResponse,
)
from bylot.errors import BylotError, DecisionError, ProblemError, RewardError, ServiceError
from bylot.problem import Limit, Problem
from bylot.router import persistence
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus

AnswerT = TypeVar("AnswerT")


class HttpCall(NamedTuple, Generic[AnswerT]):
    """What to send.

    again: is twice the same as once? If not, it is sent again only if it never arrived.
    wrong: what it is called if the server finds that it makes no sense
    plain: refusals, by code, that are answers as good as others
    slow:  may take long, as a policy may have to be compiled first
    """

    method: str
    path: str
    read: Callable[[bytes], AnswerT]
    body: bytes | None = None
    again: bool = True
    wrong: type[BylotError] = ServiceError
    plain: Mapping[str, AnswerT] = MappingProxyType({})
    slow: bool = False


def encode_request_body(body: Any, wrong: type[BylotError]) -> bytes:
    """A body as JSON; numbers of NumPy are numbers."""
    try:
        return msgspec.json.encode(body, enc_hook=encode_numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"this cannot be sent: {error}") from None


def encode_numpy(value: Any) -> Any:
    """A scalar of NumPy, or an array of such, as Python's own."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{value!r} is neither a number nor text")
    return value.tolist()


def response_reader(kind: type[AnswerT]) -> Callable[[bytes], AnswerT]:
    """How an answer of a kind is read; fields that a newer server adds are passed over."""
    decoder = msgspec.json.Decoder(kind)

    def read(body: bytes) -> AnswerT:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ServiceError(
                f"the server's answer is none that this bylot knows ({error}); "
                "are client and server of the same version?"
            ) from None

    return read


AggregationChoice = Literal["earliest", "last", "sum"]
JsonBody = dict[str, Any]


class Ask(NamedTuple):
    """A decision to be made, as `decide` takes it."""

    context: str | None = None
    available: Iterable[str] | None = None
    key: str | None = None
    defer: bool = False

    def form(self) -> JsonBody:
        """With a key in any case: asked again after a lost answer, it is the same decision."""
        up = self.available
        return {
            "context": self.context,
            "available": up if up is None or isinstance(up, str) else list(up),
            "key": self.key or uuid4().hex,
            "defer": self.defer,
        }


class Scored(NamedTuple):
    """A reward, as `reward` takes it."""

    id: str
    value: float
    spend: Mapping[str, float] | None = None
    key: str | None = None

    def form(self) -> JsonBody:
        """Without the id, which is where it goes."""
        spend = None if self.spend is None else dict(self.spend)
        return {"value": self.value, "spend": spend, "key": self.key}


def create_body(
    problem: Problem,
    policy: str | policies.Policy | policies.Auto,
    rewards: tuple[float, float],
    others: Mapping[str, Any],
) -> JsonBody:
    """The terms of a new router."""
    return {
        "problem": persistence.problem_to_data(problem),
        "policy": policy if isinstance(policy, str) else policy_body(policy),
        "rewards": list(rewards),
        **others,
    }


def policy_body(policy: policies.Policy | policies.Auto) -> JsonBody:
    """A policy with its settings."""
    plain = policies.policy_to_data(policies.find_policy(policy))
    return {"name": plain.pop("name"), "settings": plain}


def edit_body(limits: Sequence[Limit] | UnsetType, others: Mapping[str, Any]) -> JsonBody:
    """A change of terms: what is left out stays."""
    told = {name: value for name, value in others.items() if value is not UNSET}
    if limits is not UNSET:
        told["limits"] = [limit.to_data() for limit in limits]
    return told


FirstT = TypeVar("FirstT")
SecondT = TypeVar("SecondT")

ROUTERS_PATH = "/v1/routers"
PAGE_ITEMS = 1_000  # lines of a list or a log in one answer


def compose_reader(
    read: Callable[[bytes], FirstT], do: Callable[[FirstT], SecondT]
) -> Callable[[bytes], SecondT]:
    """Read, and make something of it."""
    return lambda body: do(read(body))


def router_path(name: str) -> str:
    """Where a router is."""
    return f"{ROUTERS_PATH}/{quote(name, safe='')}"


def decision_path(id: str) -> str:
    """Where a decision is."""
    return f"/v1/decisions/{quote(id, safe='')}"


read_decision = compose_reader(
    response_reader(responses.DecisionResponse), responses.DecisionResponse.decision
)
read_config = compose_reader(
    response_reader(responses.RouterResponse), lambda view: view.terms.terms()
)
read_status = compose_reader(response_reader(RouterStatusResponse), lambda view: view.status)


def create_call(form: JsonBody) -> HttpCall[RemoteConfig]:
    """Make a router."""
    body = encode_request_body(form, ProblemError)
    return HttpCall(
        "POST", ROUTERS_PATH, read_config, body, again=False, wrong=ProblemError, slow=True
    )


def list_call(after: str) -> HttpCall[RouterListResponse]:
    """A page of the list of routers."""
    return HttpCall(
        "GET",
        f"{ROUTERS_PATH}?after={quote(after, safe='')}&limit={PAGE_ITEMS}",
        response_reader(RouterListResponse),
    )


def config_call(name: str) -> HttpCall[RemoteConfig]:
    """The terms of a router."""
    return HttpCall("GET", router_path(name), read_config)


def view_call(name: str) -> HttpCall[dict[str, Any]]:
    """All that a server tells of a router, as it is."""
    return HttpCall("GET", router_path(name), response_reader(dict[str, Any]))


def status_call(name: str) -> HttpCall[RouterStatus]:
    """How a router stands."""
    return HttpCall("GET", router_path(name), read_status)


def change_call(name: str, form: JsonBody) -> HttpCall[RemoteConfig]:
    """Other terms."""
    body = encode_request_body(form, ProblemError)
    return HttpCall(
        "PATCH", router_path(name), read_config, body, again=False, wrong=ProblemError, slow=True
    )


def delete_call(name: str) -> HttpCall[None]:
    """Forget a router."""
    return HttpCall("DELETE", router_path(name), lambda body: None, again=False)


def decide_call(name: str, ask: Ask) -> HttpCall[Decision]:
    """Draw a panel."""
    body = encode_request_body(ask.form(), DecisionError)
    return HttpCall(
        "POST", f"{router_path(name)}/decisions", read_decision, body, wrong=DecisionError
    )


def decide_many_call(name: str, asks: Iterable[Ask]) -> HttpCall[list[Decision | BylotError]]:
    """Draw panels."""
    body = encode_request_body({"decisions": [ask.form() for ask in asks]}, DecisionError)
    read = compose_reader(
        response_reader(responses.DecisionOutcomes),
        lambda page: [one.outcome() for one in page.results],
    )
    return HttpCall("POST", f"{router_path(name)}/decisions:batch", read, body, wrong=DecisionError)


def reward_call(told: Scored) -> HttpCall[Receipt]:
    """Tell how well a decision went."""
    if not isinstance(told.id, str):
        raise RewardError(f"{type(told.id).__name__} {told.id!r} is no id; pass decision.id")
    read = compose_reader(
        response_reader(responses.CreditedResponse), lambda credited: credited.receipt
    )
    body = encode_request_body(told.form(), RewardError)
    unknown = {"no_such_decision": Receipt.UNKNOWN}
    path = f"{decision_path(told.id)}/reward"
    return HttpCall("POST", path, read, body, wrong=RewardError, plain=unknown)


def reward_many_call(told: Iterable[Scored]) -> HttpCall[list[Receipt | BylotError]]:
    """Tell how well decisions went."""
    body = encode_request_body(
        {"rewards": [{"decision": one.id, **one.form()} for one in told]}, RewardError
    )
    read = compose_reader(
        response_reader(responses.RewardOutcomes),
        lambda page: [one.outcome() for one in page.results],
    )
    return HttpCall("POST", "/v1/rewards:batch", read, body, wrong=RewardError)


def activate_call(id: str) -> HttpCall[Decision]:
    """Use a deferred decision after all."""
    return HttpCall(
        "POST", f"{decision_path(id)}/activate", read_decision, again=False, wrong=DecisionError
    )


def cancel_call(id: str) -> HttpCall[Decision]:
    """Let a decision be as if it had not been made."""
    return HttpCall(
        "POST", f"{decision_path(id)}/cancel", read_decision, again=False, wrong=DecisionError
    )


def events_call(name: str, after: int, limit: int = PAGE_ITEMS) -> HttpCall[LogPage]:
    """A page of a log."""
    return HttpCall(
        "GET", f"{router_path(name)}/events?after={after}&limit={limit}", response_reader(LogPage)
    )
