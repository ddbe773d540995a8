"""The state of a hold that both clients share."""

from collections.abc import Iterator
from contextlib import contextmanager

from .decision import Code, Decision, RequestRejected


class Reserved:
    """A reserve and its decision."""

    def __init__(self, reserved, decided: Decision):
        self._reserved = reserved
        # Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After
        # a denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
        is_rejected = isinstance(decided.error, RequestRejected)
        self._is_open = decided.allowed and decided.code is not Code.OVER_LIMIT and not is_rejected
        # The end that had no answer. It may be sent again: within the TTL, an end with the ID is done once.
        self._unanswered: str | None = None
        self.decision = decided
        """The decision of the reserve."""

    def _begins(self, end: str) -> bool:
        """Returns True if this end is to be sent."""
        begins = self._is_open or self._unanswered == end
        if begins:
            self._is_open, self._unanswered = False, None
        return begins

    @contextmanager
    def _ending(self, end: str) -> Iterator[list[Decision]]:
        """Remembers an end that has no answer. The decision of its call is appended to the list."""
        decided: list[Decision] = []
        error: BaseException | None = None
        try:
            yield decided
        except BaseException as raised:
            error = raised
            raise
        finally:
            answered = decided and decided[0].code is not Code.UNDECIDED
            error = error or (decided[0].error if decided else None)
            if not answered and not isinstance(error, RequestRejected):
                self._unanswered = end

    @property
    def allowed(self) -> bool:
        """True if the work may be done."""
        return self.decision.allowed

    @property
    def denied(self) -> bool:
        """True if the work is to be refused."""
        return self.decision.denied

    @property
    def id(self) -> str:
        """The ID of the hold."""
        return self._reserved.id
