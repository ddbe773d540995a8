package tollgate.client;

/**
 * The result of a call without a decision. A decision of the service always applies, also one by {@code on_store_error}.
 */
public enum FailureMode {
    /** Only the service decides: {@link NoDecisionException} is thrown. The default. */
    SERVICE,
    /** The request is allowed. */
    OPEN,
    /** The request is denied. */
    CLOSED
}
