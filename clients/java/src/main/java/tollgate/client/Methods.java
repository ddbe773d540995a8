package tollgate.client;

import com.google.protobuf.Message;
import envoy.service.ratelimit.v3.Rls.RateLimitRequest;
import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.MethodDescriptor;
import io.grpc.protobuf.ProtoUtils;
import java.util.List;
import java.util.Map;
import tollgate.v1.Hold.CancelRequest;
import tollgate.v1.Hold.CommitRequest;
import tollgate.v1.Hold.ExtendRequest;
import tollgate.v1.Hold.ReserveRequest;

/** The methods of the service. */
final class Methods {
    private static final String HOLD_SERVICE = "tollgate.v1.HoldService";

    static final MethodDescriptor<RateLimitRequest, RateLimitResponse> SHOULD_RATE_LIMIT =
        method("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit", RateLimitRequest.getDefaultInstance());
    static final MethodDescriptor<ReserveRequest, RateLimitResponse> RESERVE =
        method(HOLD_SERVICE, "Reserve", ReserveRequest.getDefaultInstance());
    static final MethodDescriptor<ExtendRequest, RateLimitResponse> EXTEND =
        method(HOLD_SERVICE, "Extend", ExtendRequest.getDefaultInstance());
    static final MethodDescriptor<CommitRequest, RateLimitResponse> COMMIT =
        method(HOLD_SERVICE, "Commit", CommitRequest.getDefaultInstance());
    static final MethodDescriptor<CancelRequest, RateLimitResponse> CANCEL =
        method(HOLD_SERVICE, "Cancel", CancelRequest.getDefaultInstance());

    /**
     * ShouldRateLimit is not retried, since a call that was lost may have been charged. The calls of HoldService have an
     * ID, and a repeated one is not charged again. Retries stop while more than a third of the attempts fail: in an
     * outage, they would multiply the load.
     */
    static final Map<String, ?> SERVICE_CONFIG = Map.of(
        "loadBalancingConfig", List.of(Map.of("round_robin", Map.of())),
        "methodConfig", List.of(Map.of(
            "name", List.of(Map.of("service", HOLD_SERVICE)),
            "retryPolicy", Map.of(
                "maxAttempts", 4.0,
                "initialBackoff", "0.01s",
                "maxBackoff", "0.1s",
                "backoffMultiplier", 2.0,
                "retryableStatusCodes", List.of("UNAVAILABLE")))),
        "retryThrottling", Map.of("maxTokens", 100.0, "tokenRatio", 0.5));

    private Methods() {}

    private static <T extends Message> MethodDescriptor<T, RateLimitResponse> method(
        String service, String name, T request) {
        return MethodDescriptor.<T, RateLimitResponse>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName(MethodDescriptor.generateFullMethodName(service, name))
            .setRequestMarshaller(ProtoUtils.marshaller(request))
            .setResponseMarshaller(ProtoUtils.marshaller(RateLimitResponse.getDefaultInstance()))
            .build();
    }
}
