"""Client of the rate limit service Tollgate."""

from .aio import AsyncClient, AsyncHold
from .asgi import RateLimitMiddleware
from .client import Client, Hold
from .decision import Code, Decision, FailureMode, NoDecision, RequestRejected, Status, TollgateError
from .decorator import rate_limited
from .request import Descriptor

__all__ = [
    "AsyncClient",
    "AsyncHold",
    "Client",
    "Code",
    "Decision",
    "Descriptor",
    "FailureMode",
    "Hold",
    "NoDecision",
    "RateLimitMiddleware",
    "RequestRejected",
    "Status",
    "TollgateError",
    "rate_limited",
]
