"""The endpoint by which the other servers of a store execute commands on this one."""

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from bylot import __version__
from bylot.server import peers
from bylot.server.endpoint import (
    CLOSE_HEADER,
    AsgiSend,
    HttpResponse,
    error_response,
    send_response,
)
from bylot.server.http_errors import ApiError
from bylot.server.request_parsing import AsgiReceive, read_body
from bylot.server.settings import CLUSTER_KEY_REMEDY
from bylot.server.state import ServerState

MAX_POST_BYTES = 100_000_000
MSGPACK_HEADERS = ((b"content-type", b"application/msgpack"),)


class CommandsEndpoint:
    """Executes the commands of other servers, which know the cluster key."""

    def __init__(self, state: ServerState) -> None:
        self.state, self.key = state, (state.settings.cluster_key or "").encode()

    async def __call__(
        self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend
    ) -> None:
        """Serve one request; a command that fails does not affect the others."""
        headers = dict(scope["headers"])
        try:
            self.check(headers)
            content = await read_body(receive, headers, MAX_POST_BYTES)
            try:
                commands = list(map(peers.decode_command, peers.decode_commands(content)))
            except (msgspec.DecodeError, KeyError):
                raise make_release_error(headers) from None
            results = await self.state.writer.execute_all(commands)  # here, whoever sent them
            sent = peers.encode(list(map(peers.encode_result, results)))
            more = (CLOSE_HEADER,) if self.state.stopping else ()  # they must not use it later
            response = HttpResponse(200, sent, (*MSGPACK_HEADERS, *more))
        except Exception as error:
            response = error_response(error)
        await send_response(send, response)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a sender with another key, or whose messages have another format."""
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self.key):
            raise ApiError(
                401,
                peers.KEY_CODE,
                f"two servers have different cluster keys; {CLUSTER_KEY_REMEDY}",
            )
        if headers.get(peers.FORMAT_HEADER.encode()) != peers.MESSAGE_FORMAT.encode():
            raise make_release_error(headers)


def make_release_error(headers: Mapping[bytes, bytes]) -> ApiError:
    """The messages of the sender cannot be read here."""
    sender = headers.get(b"user-agent", b"").decode("ascii", "replace").replace("/", " ")[:50]
    message = f"{sender or 'another server'} and bylot {__version__} cannot exchange commands; "
    return ApiError(400, peers.SKEW_CODE, message + peers.RELEASE_REMEDY)
