"""The state of a hold that both clients share."""

from .decision import Code, Decision, RequestRejected


class Reserved:
    """A reserve and its decision."""

    def __init__(self, reserved, decided: Decision):
        self._reserved = reserved
        # Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After
        # a denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
        is_rejected = isinstance(decided.error, RequestRejected)
        self._is_open = decided.allowed and decided.code is not Code.OVER_LIMIT and not is_rejected
        # The end that had no answer, which may be sent again: an end with the ID is done once.
        self._unanswered: str | None = None
        self.decision = decided
        """The decision of the reserve."""

    def _begins(self, end: str) -> bool:
        """Returns True if this end is to be sent."""
        begins = self._is_open or self._unanswered == end
        if begins:
            self._is_open, self._unanswered = False, end
        return begins

    def _ended(self, decided: Decision) -> Decision:
        if decided.code is not Code.UNDECIDED:
            self._unanswered = None
        return decided

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
