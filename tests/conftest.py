"""Fixtures that more than one module of tests asks for."""

from postgres import postgres_address, postgres_server
from stores import address, opened, store

__all__ = ["address", "opened", "postgres_address", "postgres_server", "store"]
