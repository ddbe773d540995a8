package tollgate.client;

import com.google.protobuf.Duration;
import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The decision for a request. Being over the limit is a value, not an exception.
 *
 * @param allowed whether to continue; {@code true} in shadow mode, and by {@link FailureMode#OPEN} without a decision
 * @param code the answer of the service
 * @param statuses one status for each descriptor, in order; empty without a decision
 * @param retryAfter the time after which to try again, if the service denied; empty if it is unknown, or if a retry is
 *     never admitted
 * @param headers headers for the caller's own response, if the service is configured to send them
 * @param error the reason, if the service did not decide
 */
public record Decision(
    boolean allowed,
    Code code,
    List<DescriptorStatus> statuses,
    Optional<java.time.Duration> retryAfter,
    List<Map.Entry<String, String>> headers,
    Optional<TollgateException> error) {

    /**
     * The status of one descriptor.
     *
     * @param code the answer for the descriptor
     * @param limit the amount of the limit; empty without a limit
     * @param remaining hits that remain; if over limit, fewer than were asked for
     * @param resetAfter the time until the counter is reset or, if over limit, until the hits may be admitted; empty if
     *     they never are
     */
    public record DescriptorStatus(
        Code code, OptionalLong limit, long remaining, Optional<java.time.Duration> resetAfter) {}

    /**
     * Returns the value of the HTTP header {@code Retry-After}: whole seconds, rounded up; 1 without a decision. It is empty
     * if the service says no time, since a retry is never admitted.
     */
    public Optional<String> retryAfterHeader() {
        if (retryAfter.isEmpty() && code != Code.UNDECIDED) {
            return Optional.empty();
        }
        long nanos = retryAfter.map(java.time.Duration::toNanos).orElse(0L);
        return Optional.of(Long.toString(Math.max(1, (nanos + 999_999_999L) / 1_000_000_000L)));
    }

    /** Returns the decision of a response. One without a known code is a call that failed. */
    static Decision of(RateLimitResponse response, CallSettings settings) {
        if (response.getOverallCodeValue() != RateLimitResponse.Code.OK_VALUE
            && response.getOverallCodeValue() != RateLimitResponse.Code.OVER_LIMIT_VALUE) {
            String details = "the answer has the unknown code " + response.getOverallCodeValue();
            return of(Status.INTERNAL.withDescription(details).asRuntimeException(), settings);
        }
        List<DescriptorStatus> statuses = response.getStatusesList().stream().map(Decision::status).toList();
        boolean isOverLimit = response.getOverallCode() == RateLimitResponse.Code.OVER_LIMIT;
        List<DescriptorStatus> denied = statuses.stream()
            .filter(status -> isOverLimit && status.code() == Code.OVER_LIMIT)
            .toList();
        // The wait for one of them may be never over, or unknown.
        boolean isKnown = denied.stream().allMatch(status -> status.resetAfter().isPresent());
        Optional<java.time.Duration> wait = denied.stream()
            .flatMap(status -> status.resetAfter().stream())
            .max(Comparator.naturalOrder())
            .filter(longest -> isKnown);
        List<Map.Entry<String, String>> headers = response.getResponseHeadersToAddList().stream()
            .map(header -> Map.entry(header.getKey(), header.getValue()))
            .toList();
        Code code = isOverLimit ? Code.OVER_LIMIT : Code.OK;
        return new Decision(settings.shadow() || !isOverLimit, code, statuses, wait, headers, Optional.empty());
    }

    /** Returns the decision for a call that failed, or throws its exception. */
    static Decision of(StatusRuntimeException cause, CallSettings settings) {
        TollgateException error = TollgateException.of(cause);
        boolean applies = error instanceof NoDecisionException && settings.failureMode() != FailureMode.SERVICE;
        if (!settings.shadow() && !applies) {
            throw error;
        }
        boolean isAllowed = settings.shadow() || settings.failureMode() == FailureMode.OPEN;
        return new Decision(isAllowed, Code.UNDECIDED, List.of(), Optional.empty(), List.of(), Optional.of(error));
    }

    private static DescriptorStatus status(RateLimitResponse.DescriptorStatus status) {
        boolean isOverLimit = status.getCode() == RateLimitResponse.Code.OVER_LIMIT;
        OptionalLong limit = status.hasCurrentLimit()
            ? OptionalLong.of(Integer.toUnsignedLong(status.getCurrentLimit().getRequestsPerUnit()))
            : OptionalLong.empty();
        Duration reset = status.getDurationUntilReset();
        return new DescriptorStatus(
            isOverLimit ? Code.OVER_LIMIT : Code.OK,
            limit,
            Integer.toUnsignedLong(status.getLimitRemaining()),
            status.hasDurationUntilReset()
                ? Optional.of(java.time.Duration.ofSeconds(reset.getSeconds(), reset.getNanos()))
                : Optional.empty());
    }
}
