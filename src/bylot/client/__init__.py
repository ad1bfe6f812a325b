"""Routers behind a server: the methods of `bylot.Router`, over HTTP."""

from bylot.errors import BylotError, install_command

try:
    from bylot.client.async_client import AsyncClient, AsyncRouter
    from bylot.client.client import Client, RemoteRouter
    from bylot.client.requests import Ask, Scored
except ModuleNotFoundError as error:
    if error.name not in ("httpx", "msgspec"):
        raise
    raise BylotError(f"asking a server needs {error.name}: {install_command('client')}") from None

__all__ = ["Ask", "AsyncClient", "AsyncRouter", "Client", "RemoteRouter", "Scored"]
