"""The endpoint by which the other servers of a store execute commands on this one."""

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bylot.server import peers
from bylot.server.endpoint import (
    CLOSE_HEADER,
    AsgiSend,
    HttpResponse,
    error_response,
    send_response,
)
from bylot.server.http_errors import ApiError
from bylot.server.peers import SentCommand, SentResult
from bylot.server.request_parsing import AsgiReceive, read_body
from bylot.server.state import ServerState

MAX_POST_BYTES = 100_000_000
MSGPACK_HEADERS = ((b"content-type", b"application/msgpack"),)


class CommandsEndpoint:
    """Executes the commands of other servers, which know the cluster key."""

    def __init__(self, state: ServerState, key: str) -> None:
        self.state, self.key = state, key.encode()

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve one request; a command that fails does not affect the others."""
        headers = dict(scope["headers"])
        try:
            given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(given, self.key):
                raise ApiError(401, "unauthorized", "the cluster key is wrong")
            content = await read_body(receive, headers, MAX_POST_BYTES)
            results = await self.execute(peers.decode_commands(content))
            more = (CLOSE_HEADER,) if self.state.stopping else ()  # they must not use it later
            response = HttpResponse(200, peers.encode(results), (*MSGPACK_HEADERS, *more))
        except (msgspec.DecodeError, KeyError):
            message = "these commands cannot be read: the servers have different versions"
            response = error_response(ApiError(400, "version_skew", message))
        except Exception as error:
            response = error_response(error)
        await send_response(send, response)

    async def execute(self, sent: Sequence[SentCommand]) -> list[SentResult]:
        """Execute commands here, whoever they came from."""
        found = await self.state.writer.execute_all(list(map(peers.decode_command, sent)))
        return list(map(peers.encode_result, found))
