"""Middleware for ASGI applications: Starlette, FastAPI, Quart, Django."""

import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from .aio import AsyncClient
from .decision import FailureMode, NoDecision
from .request import Descriptor

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LOG = logging.getLogger("tollgate")
# Names and values of headers that HTTP permits (RFC 9110, 5.1 and 5.5).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TITLES = {429: "Too Many Requests", 503: "Service Unavailable"}


class RateLimitMiddleware:
    """Answers HTTP requests that are denied with 429 and `Retry-After`; without a decision, with 503.

    `descriptors` maps the scope of a request to descriptors; none: the request is not limited. Other messages, such as
    those of a WebSocket, pass. Why there is no decision is logged by the logger `tollgate`, at most once a second.
    """

    def __init__(
        self,
        app,
        *,
        client: AsyncClient,
        domain: str,
        descriptors: Callable[[Scope], Sequence[Descriptor]],
        timeout: float | None = None,
        failure_mode: FailureMode | None = None,
        shadow: bool | None = None,
    ):
        self._app = app
        self._client = client
        self._domain = domain
        self._descriptors = descriptors
        self._options = {"timeout": timeout, "failure_mode": failure_mode, "shadow": shadow}
        self._next_warning = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        descriptors = self._descriptors(scope) if scope["type"] == "http" else ()
        if not descriptors:
            return await self._app(scope, receive, send)
        try:
            decision = await self._client.should_rate_limit(self._domain, descriptors, **self._options)
        except NoDecision as error:
            self._warn(error)
            return await _answer(send, 503, [])
        headers = valid_headers(decision.headers)
        if decision.denied:
            if decision.retry_after_header:
                headers.append((b"retry-after", decision.retry_after_header.encode()))
            return await _answer(send, 429, headers)
        await self._app(scope, receive, _with_headers(send, headers) if headers else send)

    def _warn(self, error: NoDecision) -> None:
        now = time.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + 1
            _LOG.warning("no rate limit decision, answered with 503: %s", error)


def valid_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers that HTTP permits: a server writes others as they are, line breaks too."""
    valid = ((name, value) for name, value in headers if _NAME.fullmatch(name) and _VALUE.fullmatch(value))
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in valid]


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"type": "about:blank", "title": _TITLES[status], "status": status}).encode()
    own = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": own + headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_with_headers


def client_address(scope: Scope) -> str:
    """Returns the address of the peer, or an empty text if the server does not know it.

    Behind a proxy, it is that of the proxy, unless the server is configured to trust `X-Forwarded-For`.
    """
    client = scope.get("client")
    return client[0] if client else ""
