package tollgate.client;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;

/** A call that ended without a decision. */
public abstract class TollgateException extends RuntimeException {
    private final transient Status status;

    TollgateException(StatusRuntimeException cause) {
        super(cause.getMessage(), cause);
        status = cause.getStatus();
    }

    /** Returns gRPC's status of the call. */
    public final Status status() {
        return status;
    }

    /** Returns the exception for a call that failed. */
    static TollgateException of(StatusRuntimeException cause) {
        return switch (cause.getStatus().getCode()) {
            // The failure mode does not apply to these: a request that is never valid would never be limited.
            case INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, UNAUTHENTICATED, FAILED_PRECONDITION,
                OUT_OF_RANGE, UNIMPLEMENTED -> new RequestRejectedException(cause);
            default -> new NoDecisionException(cause);
        };
    }
}
