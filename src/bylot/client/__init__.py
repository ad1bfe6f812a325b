"""Routers on a server: the methods of `bylot.Router`, over HTTP."""

from bylot.errors import BylotError, install_command

try:
    from bylot.client.client import AsyncClient, AsyncRouter, Client, RemoteRouter
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise BylotError(f"the client needs {error.name}: {install_command('client')}") from None

from bylot.api import DecisionRequest, RewardItem

__all__ = ["AsyncClient", "AsyncRouter", "Client", "DecisionRequest", "RemoteRouter", "RewardItem"]
