package tollgate.client;

import java.time.Duration;

/**
 * The settings of a call.
 *
 * @param timeout the time after which the call ends without a decision; an earlier deadline of gRPC's context applies
 * @param failureMode the result of a call without a decision
 * @param shadow whether every request is allowed: it is counted and decided, and {@link Decision#code} has the answer
 */
public record CallSettings(Duration timeout, FailureMode failureMode, boolean shadow) {
    /** 250 ms, {@link FailureMode#SERVICE}, and no shadow mode. */
    public static final CallSettings DEFAULT = new CallSettings(Duration.ofMillis(250), FailureMode.SERVICE, false);

    /** Returns the same settings with another timeout. */
    public CallSettings withTimeout(Duration timeout) {
        return new CallSettings(timeout, failureMode, shadow);
    }

    /** Returns the same settings with another failure mode. */
    public CallSettings withFailureMode(FailureMode failureMode) {
        return new CallSettings(timeout, failureMode, shadow);
    }

    /** Returns the same settings with or without shadow mode. */
    public CallSettings withShadow(boolean shadow) {
        return new CallSettings(timeout, failureMode, shadow);
    }
}
