"""Commands between servers: how they are encoded, and sent to the owner of a router.

Commands that wait for the same server travel together, so that a busy router costs few requests.
A command is forwarded once at most: whoever receives it executes it, or says that it cannot.
Servers of different releases understand each other if their messages have the same format.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct, structs

from bylot import __version__, errors
from bylot.api import ErrorBody
from bylot.eventlog import commands
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import Command
from bylot.server.http_errors import ApiError, to_api_error

log = logging.getLogger("bylot.server")

COMMANDS_PATH = "/cluster/commands"
MAX_COMMANDS_PER_POST = 1_000
MAX_POSTS = 4  # to one server at once
CONNECT_TIMEOUT_S = 1.0
MESSAGE_FORMAT = "2"
"""To be changed with a command or a result that another release would read wrongly, such as a new
field that must not be ignored; until all servers have the new release, the two do not forward.
"""
FORMAT_HEADER = "x-bylot-format"
RELEASE_REMEDY = "install the same release on all servers of the store"

KINDS = {kind.__name__: kind for kind in CommandHandler.HANDLERS}
"""The commands that travel: all that have a handler, whose annotation is the type of the result."""
KEPT_ERRORS = {
    one.__name__: one
    for one in (errors.NoSubstitute, errors.TooManyContexts, errors.PolicyCompiling)
}
"""Errors that callers distinguish; all others are known by their code."""
SKEW_CODE, KEY_CODE = "version_skew", "cluster_key"
SKEW_RETRY_S = 4.0
NOT_EXECUTED_CODES = ("draining", "overloaded")  # of errors 503; others may follow a time-out
MOVED_ERRORS = (errors.RouterBusy, errors.LeaseLost)
"""Nothing was done, as another server owns the router."""


class SentCommand(Struct, frozen=True, array_like=True):
    """A command on its way."""

    kind: str
    body: msgspec.Raw


class SentResult(Struct, frozen=True, array_like=True):
    """The result of a command, or its error; moved: nothing was done, another server owns it."""

    body: msgspec.Raw = msgspec.Raw(b"\xc0")  # null
    status: int = 0
    code: str = ""
    message: str = ""
    field: str | None = None
    retry_after: float | None = None
    kind: str = ""
    moved: bool = False
    resets_at: int | None = None


encode = msgspec.msgpack.Encoder().encode
decode_commands = msgspec.msgpack.Decoder(list[SentCommand]).decode
decode_results = msgspec.msgpack.Decoder(list[SentResult]).decode


def encode_command(command: Command) -> SentCommand:
    """A command as it travels; the owner validates configurations itself."""
    if isinstance(command, commands.EditRouter):
        command = structs.replace(command, prepared=None)
    return SentCommand(type(command).__name__, msgspec.Raw(encode(command)))


def decode_command(sent: SentCommand) -> Command:
    """The command that another server has sent."""
    return msgspec.msgpack.decode(sent.body, type=KINDS[sent.kind])


def encode_result(result: Any) -> SentResult:
    """A result or an exception as it travels."""
    if not isinstance(result, Exception):
        return SentResult(msgspec.Raw(encode(result)))
    error = to_api_error(result)
    return SentResult(
        status=error.status,
        code=error.code,
        message=str(error),
        field=error.field,
        retry_after=error.retry_after,
        kind=type(result).__name__,
        moved=isinstance(result, MOVED_ERRORS),
        resets_at=error.resets_at,
    )


def decode_result(command: Command, sent: SentResult) -> Any:
    """The result of a command that another server has executed, or the exception."""
    if not sent.status:
        handler = CommandHandler.HANDLERS[type(command)]
        return msgspec.msgpack.decode(sent.body, type=handler.__annotations__["return"])
    if sent.moved:
        return errors.RouterBusy(sent.message)
    if sent.kind in KEPT_ERRORS:
        return KEPT_ERRORS[sent.kind](sent.message)
    parts = sent.status, sent.code, sent.message, sent.field, sent.retry_after
    return ApiError(*parts, resets_at=sent.resets_at)


class PeerLost(Exception):
    """Another server did not answer; sent: it may have executed the commands."""

    def __init__(self, address: str, sent: bool) -> None:
        super().__init__(address)
        self.address, self.sent = address, sent


def explain_refusal(address: str, status: int, content: bytes) -> "ApiError | PeerLost":
    """What it means that another server answers a request as a whole with an error."""
    try:
        error = msgspec.json.decode(content, type=ErrorBody).error
    except msgspec.MsgspecError:
        return PeerLost(address, sent=status >= 500)
    if error.code == SKEW_CODE:
        return make_skew_error(error.message)
    if error.code == KEY_CODE:
        return ApiError(503, error.code, error.message)
    return PeerLost(address, sent=status >= 500 and error.code not in NOT_EXECUTED_CODES)


def make_skew_error(message: str) -> ApiError:
    """Two servers do not understand each other; during an upgrade, a retry may help."""
    return ApiError(503, SKEW_CODE, message, retry_after=SKEW_RETRY_S)


async def check_cluster_key(addresses: Sequence[str], key: str) -> None:
    """Refuse a key if a server of the cluster that answers has another one."""

    async def check(address: str) -> None:
        peer = Peer(address, key, CONNECT_TIMEOUT_S)
        try:
            await peer.post([])
        except ApiError as error:
            if error.code == KEY_CODE:
                raise errors.BylotError(
                    f"the server at {address} has another cluster key",
                    remedy="use its key, or stop all servers of the store to change it",
                ) from None
        except PeerLost as error:
            log.info("%s did not answer", error.address)
        finally:
            await peer.close()

    await asyncio.gather(*map(check, addresses))


class Peer:
    """Another server: commands that wait for it, and the requests that carry them."""

    def __init__(self, address: str, key: str, timeout_s: float) -> None:
        self.address, self.key, self.timeout_s = address, key, timeout_s
        self.waiting: list[tuple[Sequence[Command], asyncio.Future[list[Any]]]] = []
        self.posts: set[asyncio.Task[None]] = set()
        self.sent: dict[asyncio.Timeout, float] = {}  # posts without an answer, and since when
        self.session: aiohttp.ClientSession | None = None

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Results or exceptions of commands.

        Raises PeerLost if the server does not answer, and ApiError if the two do not understand
        each other.
        """
        results: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.waiting.append((commands, results))
        if len(self.posts) < MAX_POSTS:
            task = asyncio.create_task(self.post_waiting())
            self.posts.add(task)
            task.add_done_callback(self.posts.discard)
        return await results

    async def post_waiting(self) -> None:
        """Send what waits until nothing does."""
        while self.waiting:
            batch, count = [], 0
            while self.waiting and count < MAX_COMMANDS_PER_POST:
                batch.append(self.waiting.pop(0))
                count += len(batch[-1][0])
            try:
                results = await self.post([one for some, _ in batch for one in some])
            except Exception as error:
                log.warning(
                    "%s did not execute %d commands: %r",
                    self.address,
                    count,
                    error.__cause__ or error,
                )
                known = isinstance(error, PeerLost | ApiError)
                lost = error if known else PeerLost(self.address, sent=True)
                for _, future in batch:
                    if not future.done():
                        future.set_exception(lost)
                continue
            for some, future in batch:
                part, results = results[: len(some)], results[len(some) :]
                if not future.done():
                    future.set_result(part)

    async def post(self, batch: Sequence[Command]) -> list[Any]:
        """Send commands in one request."""
        data = encode([encode_command(one) for one in batch])
        try:
            async with asyncio.timeout(None) as timeout:
                self.sent[timeout] = asyncio.get_running_loop().time()
                async with self.open_session().post(COMMANDS_PATH, data=data) as response:
                    content = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise PeerLost(self.address, sent=False) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PeerLost(self.address, sent=True) from error
        finally:
            self.sent.pop(timeout, None)
        if response.status != 200:
            raise explain_refusal(self.address, response.status, content)
        try:
            found = decode_results(content)
            return [decode_result(one, result) for one, result in zip(batch, found, strict=True)]
        except (msgspec.DecodeError, ValueError):
            what = f"{self.address} answered in another format, and may have executed this"
            raise make_skew_error(f"{what}; {RELEASE_REMEDY}") from None

    def give_up(self, older_than_s: float) -> None:
        """Wait no longer for answers to what was sent so long ago, nor send what waits behind."""
        now = asyncio.get_running_loop().time()
        overdue = [one for one, since in self.sent.items() if now - since > older_than_s]
        for timeout in overdue:
            if timeout.when() is None:
                timeout.reschedule(now)
        while overdue and self.waiting:
            _, future = self.waiting.pop()
            if not future.done():
                future.set_exception(PeerLost(self.address, sent=False))

    def open_session(self) -> aiohttp.ClientSession:
        """The connections, which are kept open."""
        if self.session is None:
            timeout = aiohttp.ClientTimeout(self.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
            self.session = aiohttp.ClientSession(
                self.address,
                timeout=timeout,
                headers={
                    "authorization": f"Bearer {self.key}",
                    "user-agent": f"bylot/{__version__}",
                    FORMAT_HEADER: MESSAGE_FORMAT,
                },
            )
        return self.session

    async def close(self) -> None:
        for task in self.posts:
            task.cancel()
        if self.session is not None:
            await self.session.close()
