"""Everything that a server can be asked, as calls."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

from bylot.client import answers
from bylot.client.answers import Lines, Listing, Terms
from bylot.client.call import Call, reader, written
from bylot.client.forms import Ask, Form, Scored
from bylot.client.standing import Stood, status
from bylot.decision import Decision, Receipt
from bylot.errors import BylotError, DecisionError, ProblemError, RewardError
from bylot.status import Status

One = TypeVar("One")
Other = TypeVar("Other")

ROUTERS = "/v1/routers"
PAGE = 1_000  # lines of a list or a log in one answer


def then(read: Callable[[bytes], One], do: Callable[[One], Other]) -> Callable[[bytes], Other]:
    """Read, and make something of it."""
    return lambda body: do(read(body))


def router(name: str) -> str:
    """Where a router is."""
    return f"{ROUTERS}/{quote(name, safe='')}"


def decision(id: str) -> str:  # noqa: A002 - the public word
    """Where a decision is."""
    return f"/v1/decisions/{quote(id, safe='')}"


made = then(reader(answers.Made), answers.Made.decision)
shown = then(reader(answers.View), lambda view: view.terms.terms())
stood = then(reader(Stood), status)


def create(form: Form) -> Call[Terms]:
    """Make a router."""
    body = written(form, ProblemError)
    return Call("POST", ROUTERS, shown, body, again=False, wrong=ProblemError, slow=True)


def listing(after: str) -> Call[Listing]:
    """A page of the list of routers."""
    return Call("GET", f"{ROUTERS}?after={quote(after, safe='')}&limit={PAGE}", reader(Listing))


def show(name: str) -> Call[Terms]:
    """The terms of a router."""
    return Call("GET", router(name), shown)


def view(name: str) -> Call[dict[str, Any]]:
    """All that a server tells of a router, as it is."""
    return Call("GET", router(name), reader(dict[str, Any]))


def standing(name: str) -> Call[Status]:
    """How a router stands."""
    return Call("GET", router(name), stood)


def change(name: str, form: Form) -> Call[Terms]:
    """Other terms."""
    body = written(form, ProblemError)
    return Call("PATCH", router(name), shown, body, again=False, wrong=ProblemError, slow=True)


def delete(name: str) -> Call[None]:
    """Forget a router."""
    return Call("DELETE", router(name), lambda body: None, again=False)


def decide(name: str, ask: Ask) -> Call[Decision]:
    """Draw a panel."""
    body = written(ask.form(), DecisionError)
    return Call("POST", f"{router(name)}/decisions", made, body, wrong=DecisionError)


def decide_many(name: str, asks: Iterable[Ask]) -> Call[list[Decision | BylotError]]:
    """Draw panels."""
    body = written({"decisions": [ask.form() for ask in asks]}, DecisionError)
    read = then(reader(answers.Decisions), lambda page: [one.outcome() for one in page.results])
    return Call("POST", f"{router(name)}/decisions:batch", read, body, wrong=DecisionError)


def reward(told: Scored) -> Call[Receipt]:
    """Tell how well a decision went."""
    if not isinstance(told.id, str):
        raise RewardError(f"{type(told.id).__name__} {told.id!r} is no id; pass decision.id")
    read = then(reader(answers.Credited), lambda credited: credited.receipt)
    body = written(told.form(), RewardError)
    unknown = {"no_such_decision": Receipt.UNKNOWN}
    path = f"{decision(told.id)}/reward"
    return Call("POST", path, read, body, wrong=RewardError, plain=unknown)


def reward_many(told: Iterable[Scored]) -> Call[list[Receipt | BylotError]]:
    """Tell how well decisions went."""
    body = written({"rewards": [{"decision": one.id, **one.form()} for one in told]}, RewardError)
    read = then(reader(answers.Receipts), lambda page: [one.outcome() for one in page.results])
    return Call("POST", "/v1/rewards:batch", read, body, wrong=RewardError)


def activate(id: str) -> Call[Decision]:  # noqa: A002
    """Use a deferred decision after all."""
    return Call("POST", f"{decision(id)}/activate", made, again=False, wrong=DecisionError)


def cancel(id: str) -> Call[Decision]:  # noqa: A002
    """Let a decision be as if it had not been made."""
    return Call("POST", f"{decision(id)}/cancel", made, again=False, wrong=DecisionError)


def events(name: str, after: int, limit: int = PAGE) -> Call[Lines]:
    """A page of a log."""
    return Call("GET", f"{router(name)}/events?after={after}&limit={limit}", reader(Lines))
