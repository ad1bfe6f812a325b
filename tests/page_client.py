"""A headless client of pages that keeps cookies and shows redirects."""

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute


class PageClient:
    """Sends requests to an application in this process."""

    def __init__(self, routes: list[BaseRoute], base: str = "https://bylot.test") -> None:
        self.app, self.base = Starlette(routes=routes), base
        self.cookies = httpx.Cookies()

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Get a page."""
        return asyncio.run(self.send("GET", path, options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        """Send a form."""
        return asyncio.run(self.send("POST", path, options))

    async def send(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(
            transport=transport, base_url=self.base, cookies=self.cookies
        ) as client:
            answer = await client.request(method, path, **options)
            self.cookies = client.cookies
        return answer
