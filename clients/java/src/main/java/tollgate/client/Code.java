package tollgate.client;

/** An answer of the service. */
public enum Code {
    /** The request is within its limits, or has none. */
    OK,
    /** The service denied the request. */
    OVER_LIMIT,
    /** The service did not decide; see {@link Decision#error}. */
    UNDECIDED
}
