package tollgate.client;

import io.grpc.StatusRuntimeException;

/** The service refuses the request, which a retry does not change: it is not valid, or not permitted. */
public final class RequestRejectedException extends TollgateException {
    RequestRejectedException(StatusRuntimeException cause) {
        super(cause);
    }
}
