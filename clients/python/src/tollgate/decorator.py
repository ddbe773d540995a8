"""A decorator for functions and coroutine functions."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .aio import AsyncClient
from .client import Client
from .decision import Decision
from .request import Descriptor


def rate_limited(
    client: Client | AsyncClient,
    domain: str,
    descriptors: Callable[..., Sequence[Descriptor]],
    *,
    on_denied: Callable[[Decision], Any],
    hits: int = 1,
    **options,
):
    """Calls the function only if its call is allowed; otherwise returns the result of `on_denied`.

    `descriptors` is called with the arguments of the function; `options` are those of `should_rate_limit`. A coroutine
    function needs an `AsyncClient`, another one a `Client`.
    """

    def decorate(function):
        if inspect.iscoroutinefunction(function) != isinstance(client, AsyncClient):
            raise TypeError(f"{function.__qualname__}: coroutine functions need an AsyncClient, others a Client")

        @functools.wraps(function)
        async def limited_coroutine(*args, **kwargs):
            decision = await client.should_rate_limit(domain, descriptors(*args, **kwargs), hits, **options)
            return await function(*args, **kwargs) if decision.allowed else on_denied(decision)

        @functools.wraps(function)
        def limited(*args, **kwargs):
            decision = client.should_rate_limit(domain, descriptors(*args, **kwargs), hits, **options)
            return function(*args, **kwargs) if decision.allowed else on_denied(decision)

        return limited_coroutine if isinstance(client, AsyncClient) else limited

    return decorate
