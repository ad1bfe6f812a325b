"""What a server concludes from another one's refusal: whether a command may have been executed."""

import asyncio

import pytest
from aiohttp import web

from bylot.eventlog.commands import GetRouter
from bylot.server.http_errors import ApiError
from bylot.server.peers import COMMANDS_PATH, Peer, PeerLost


async def ask(status: int, body: str) -> Exception:
    """The error of a command that another server answers like this."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_post(COMMANDS_PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    peer = Peer(f"http://127.0.0.1:{port}", "key", 5.0)
    try:
        await peer.execute([GetRouter("triage")])
    except (PeerLost, ApiError) as error:
        return error
    finally:
        await peer.close()
        await runner.cleanup()
    raise AssertionError("it succeeded")


@pytest.mark.parametrize(
    ("status", "code", "may_be_executed"),
    [
        (503, "draining", False),
        (503, "overloaded", False),
        (503, "timeout", True),  # it waited, and may have begun
        (500, "internal", True),
        (413, "too_large", False),
    ],
)
def test_a_time_out_of_the_owner_is_no_refusal(
    status: int, code: str, may_be_executed: bool
) -> None:
    body = f'{{"error": {{"code": "{code}", "message": "no"}}}}'
    error = asyncio.run(ask(status, body))
    assert isinstance(error, PeerLost)
    assert error.sent == may_be_executed


def test_an_error_of_a_proxy_between_servers_may_follow_an_execution() -> None:
    error = asyncio.run(ask(502, "<html>bad gateway</html>"))
    assert isinstance(error, PeerLost)
    assert error.sent
