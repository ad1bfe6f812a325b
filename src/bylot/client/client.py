"""Client and RemoteRouter: a server and its routers, used from threads."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Unpack

import httpx

from bylot import api
from bylot.client import requests, retry
from bylot.client.requests import AnswerT, CreateOptions, EditOptions, HttpCall
from bylot.errors import BylotError
from bylot.policies import Auto, Policy, policy_from_data
from bylot.problem import Problem
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus


def decision_request(
    context: str | None, available: Iterable[str] | None, key: str | None, defer: bool
) -> api.DecisionRequest:
    """The arguments of `decide` as a request."""
    if available is not None and not isinstance(available, str):
        available = tuple(available)
    return api.DecisionRequest(context, available, key, defer)  # type: ignore[arg-type]


class RemoteRouter:
    """A router on a server, with the methods of `bylot.Router`; `Client.router` returns one."""

    def __init__(self, client: "Client", name: str) -> None:
        self.send, self.name = client.send, name

    def __repr__(self) -> str:
        return f"<RemoteRouter {self.name}>"

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
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

        Returns
        -------
        Decision
        """
        request = decision_request(context, available, key, defer)
        return self.send(requests.decide(self.name, request))

    def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision: once, at any time, in any order.

        Parameters
        ----------
        id : str
            Id of the decision.
        value : float
            The reward, in the range of the router.
        spend : mapping, optional
            Actual costs of the panel by name; omitted costs stay as stated.
        key : str, optional
            Identifies one of several rewards of the decision.

        Returns
        -------
        Receipt
            DUPLICATE if the reward had arrived before, such as before a lost response.
        """
        request = api.RewardRequest(value, None if spend is None else dict(spend), key)
        return self.send(requests.reward(id, request))

    def decide_many(self, items: Iterable[api.DecisionRequest]) -> list[Decision | BylotError]:
        """Make several decisions at once; returns a decision or an error for each."""
        return self.send(requests.decide_many(self.name, items))

    def reward_many(self, items: Iterable[api.RewardItem]) -> list[Receipt | BylotError]:
        """Report several rewards at once; returns a receipt or an error for each."""
        return self.send(requests.reward_many(items))

    def activate(self, id: str) -> Decision:
        """Activate a deferred decision: it waits for its reward from now on."""
        return self.send(requests.activate(id))

    def cancel(self, id: str) -> Decision:
        """Cancel a decision that was never used: it costs nothing and has no reward."""
        return self.send(requests.cancel(id))

    def status(self) -> RouterStatus:
        """Averages, slack and price of every limit, current distributions."""
        return self.send(requests.get_status(self.name))

    def config(self) -> RouterConfig:
        """The current configuration."""
        return self.send(requests.get_config(self.name))

    def edit(self, **options: Unpack[EditOptions]) -> RouterConfig:
        """Edit the configuration, from the next decision on; omitted fields stay as they are.

        Parameters
        ----------
        limits : sequence of Limit
            The complete list of limits, which replaces the current one.
        add : sequence of dict
            New experts: {"name": ..., "costs": {...}, "shares": [...]}.
        remove, pause, resume : sequence of str
            Experts to remove, to skip for now, or to ask again.
        wait, default, aggregate
            As in `Client.create`.
        version : int
            The version that you have seen; DecisionStateError if there is another one by now.

        Returns
        -------
        RouterConfig
            The new configuration.
        """
        return self.send(requests.edit_router(self.name, options))

    def delete(self) -> None:
        """Delete the router and its event log."""
        self.send(requests.delete_router(self.name))

    def events(self, after: int = -1) -> Iterator[api.EventRecord]:
        """The events of its log after a sequence number."""
        following: int | None = after
        while following is not None:
            page = self.send(requests.list_events(self.name, following))
            yield from page.events
            following = page.next

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits."""
        return persistence.problem_from_data(self.config().problem)

    @property
    def policy(self) -> Policy:
        """The policy and its settings."""
        policy = policy_from_data(self.config().policy)
        assert not isinstance(policy, Auto), "a router has the policy that was chosen"
        return policy

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return self.config().seed

    @property
    def horizon(self) -> int | None:
        """Expected number of decisions, if declared."""
        return self.config().horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """The range of rewards."""
        return self.config().rewards


class Client:
    """A bylot server, such as `bylot serve` starts; threads may share a client.

    Parameters
    ----------
    url : str
        Address of the server.
    key : str, optional
        API key, as `bylot keys create` prints it; a local server may need none.
    timeout : float
        Seconds to wait for a connection, and for each part of a response.
    retries : int
        How often a request is repeated if no response arrives or the server is busy; the default
        takes about half a minute. Decisions are repeated under the same key, so they are made once.

    Raises
    ------
    ServerUnreachable
        From every method, if the server does not answer.
    AccessDenied
        From every method, if the key does not permit the request.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     decision = client.router("triage").decide(context="chest pain")
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = retry.DEFAULT_RETRIES,
    ) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        self._http = httpx.Client(**retry.httpx_settings(url, key))

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def create(
        self,
        name: str,
        problem: Problem,
        policy: str | Policy | Auto = "auto",
        **options: Unpack[CreateOptions],
    ) -> RemoteRouter:
        """Create a router.

        Parameters
        ----------
        name, problem, policy
            Name of the router; problem and policy as in `bylot.Router`.
        seed, horizon, rewards, memory
            As in `bylot.Router`.
        wait : float, optional
            Seconds within which a reward counts; by default as long as its decision is kept.
        default : float, optional
            The reward that is learned if none arrives in time; by default nothing is learned.
        aggregate : {"earliest", "last", "sum"}
            Which of several rewards with different keys counts: the earliest, at once; or the last
            or the sum, when the wait is over.
        max_contexts : int, optional
            By default 1,000, or as many as the policy supports.

        Returns
        -------
        RemoteRouter
            The new router.

        Raises
        ------
        RouterExists
            If a router of this name exists already.
        InfeasibleLimits
            If no policy can keep the limits.
        """
        self.send(requests.create_router(name, problem, policy, options))
        return self.router(name)

    def router(self, name: str) -> RemoteRouter:
        """Refer to an existing router; sends no request.

        Parameters
        ----------
        name : str
            Name of the router.

        Returns
        -------
        RemoteRouter
            The router; its methods raise RouterNotFound if it does not exist.
        """
        return RemoteRouter(self, name)

    def routers(self) -> Iterator[api.RouterSummary]:
        """List all routers.

        Returns
        -------
        iterator of RouterSummary
            The routers, ordered by name.
        """
        after: str | None = ""
        while after is not None:
            page = self.send(requests.list_routers(after))
            yield from page.routers
            after = page.next

    def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a request, with retries."""
        steps = retry.retry_until_answered(call, self.retries)
        pause = next(steps)
        while True:
            time.sleep(pause)
            try:
                pause = steps.send(self._attempt(call))
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer

    def _attempt(self, call: HttpCall[AnswerT]) -> retry.HttpReply | retry.LostReply:
        try:
            response = self._http.request(**retry.httpx_request(call, self.timeout))
        except httpx.TransportError as error:
            return retry.reply_from_error(error)
        return retry.reply_from_response(response)
