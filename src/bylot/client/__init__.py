"""Routers behind a server: the methods of `bylot.Router`, over HTTP."""

from bylot.errors import BylotError
from bylot.extras import install

try:
    from bylot.client.async_client import AsyncClient
    from bylot.client.async_router import AsyncRouter
    from bylot.client.client import Client
    from bylot.client.forms import Ask, Scored
    from bylot.client.router import RemoteRouter
except ModuleNotFoundError as error:
    if error.name not in ("httpx", "msgspec"):
        raise
    raise BylotError(f"asking a server needs {error.name}: {install('client')}") from None

__all__ = ["Ask", "AsyncClient", "AsyncRouter", "Client", "RemoteRouter", "Scored"]
