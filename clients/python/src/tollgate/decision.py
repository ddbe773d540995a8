"""The result of a call: decisions, failure modes and errors."""

import enum
import math
from dataclasses import dataclass

import grpc


class Code(enum.Enum):
    """What the service answered."""

    OK = "OK"
    OVER_LIMIT = "OVER_LIMIT"
    UNDECIDED = "UNDECIDED"
    """The service did not decide; see `Decision.error`."""


class FailureMode(enum.Enum):
    """What a call without a decision becomes. A decision of the service, also one by `on_store_error`, always applies."""

    SERVICE = "service"
    """Only the service decides: `NoDecision` is raised."""
    OPEN = "open"
    """The request is allowed."""
    CLOSED = "closed"
    """The request is denied."""


class TollgateError(Exception):
    """A call that ended without a decision."""

    def __init__(self, status: grpc.StatusCode, message: str):
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class NoDecision(TollgateError):
    """The service did not decide: it cannot be reached, was too late, or its store failed."""


class RequestRejected(TollgateError):
    """The service refuses the request, which a retry does not change: it is not valid, or not permitted."""


# The failure mode does not apply to these: a request that is never valid would never be limited.
_REJECTIONS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one descriptor."""

    code: Code
    limit: int | None
    """The amount of the limit; None without a limit."""
    remaining: int
    """Hits that remain; if over limit, fewer than were asked for."""
    reset_after: float | None
    """Seconds until the counter is reset or, if over limit, until the hits may be admitted; None if they never are."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for a request. Being over the limit is a value, not an error."""

    allowed: bool
    """True if the request may continue; also in shadow mode, and by `FailureMode.OPEN` without a decision."""
    code: Code
    """What the service answered."""
    statuses: tuple[Status, ...] = ()
    """One for each descriptor, in order; empty without a decision."""
    retry_after: float | None = None
    """Seconds after which to try again, if the service denied; None if it is unknown, or a retry is never admitted."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers for the caller's own response, if the service is configured to send them."""
    error: TollgateError | None = None
    """The reason, if the service did not decide."""

    @property
    def denied(self) -> bool:
        """True if the request is to be refused."""
        return not self.allowed

    @property
    def retry_after_header(self) -> str | None:
        """The value of the HTTP header `Retry-After`: whole seconds, rounded up; 1 without a decision.

        None if the service says no time, since a retry is never admitted.
        """
        if self.retry_after is None:
            return "1" if self.code is Code.UNDECIDED else None
        return str(max(1, math.ceil(self.retry_after)))


def from_response(response, failure_mode: FailureMode, shadow: bool) -> Decision:
    """Returns the decision of a response. One without a known code is none."""
    if response.overall_code not in (1, 2):
        details = f"the answer has the unknown code {response.overall_code}"
        return _from_status(grpc.StatusCode.INTERNAL, details, failure_mode, shadow)
    over_limit = response.overall_code == 2
    statuses = tuple(_status(status) for status in response.statuses)
    waits = [status.reset_after for status in statuses if status.code is Code.OVER_LIMIT]
    return Decision(
        allowed=shadow or not over_limit,
        code=Code.OVER_LIMIT if over_limit else Code.OK,
        statuses=statuses,
        retry_after=_longest(waits) if over_limit else None,
        headers=tuple((header.key, header.value) for header in response.response_headers_to_add),
    )


def _longest(waits: list[float | None]) -> float | None:
    """Returns the longest wait; None if one of them is never over, or unknown."""
    known = [wait for wait in waits if wait is not None]
    return max(known, default=None) if len(known) == len(waits) else None


def from_error(error: grpc.RpcError, failure_mode: FailureMode, shadow: bool) -> Decision:
    """Returns the decision for a call that failed, or raises its error."""
    return _from_status(error.code(), error.details() or "", failure_mode, shadow, error)


def _from_status(status, details: str, failure_mode: FailureMode, shadow: bool, cause=None) -> Decision:
    kind = RequestRejected if status in _REJECTIONS else NoDecision
    failure = kind(status, details)
    if shadow:
        return Decision(allowed=True, code=Code.UNDECIDED, error=failure)
    if kind is RequestRejected or failure_mode is FailureMode.SERVICE:
        raise failure from cause
    return Decision(allowed=failure_mode is FailureMode.OPEN, code=Code.UNDECIDED, error=failure)


def _status(status) -> Status:
    has_limit = status.HasField("current_limit")
    has_reset = status.HasField("duration_until_reset")
    reset = status.duration_until_reset
    return Status(
        code=Code.OVER_LIMIT if status.code == 2 else Code.OK,
        limit=status.current_limit.requests_per_unit if has_limit else None,
        remaining=status.limit_remaining,
        reset_after=reset.seconds + reset.nanos / 1e9 if has_reset else None,
    )
