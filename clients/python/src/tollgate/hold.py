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
        self.decision = decided
        """The decision of the reserve."""

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
