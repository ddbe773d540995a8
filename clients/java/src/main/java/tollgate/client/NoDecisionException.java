package tollgate.client;

import io.grpc.StatusRuntimeException;

/** The service did not decide: it cannot be reached, was too late, or its store failed. */
public final class NoDecisionException extends TollgateException {
    NoDecisionException(StatusRuntimeException cause) {
        super(cause);
    }
}
