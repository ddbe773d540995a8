package tollgate.client;

import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.Context;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import tollgate.v1.Hold.CancelRequest;
import tollgate.v1.Hold.CommitRequest;
import tollgate.v1.Hold.ExtendRequest;
import tollgate.v1.Hold.ReserveRequest;

/** Hits that are reserved until they are committed or cancelled, or until their TTL. */
public final class Hold implements AutoCloseable {
    private final TollgateClient client;
    private final ReserveRequest reserved;
    private final Decision decision;
    private final CallSettings settings;
    private final AtomicBoolean isOpen;

    Hold(TollgateClient client, ReserveRequest reserved, Decision decision, CallSettings settings) {
        this.client = client;
        this.reserved = reserved;
        this.decision = decision;
        this.settings = settings;
        // Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After
        // a denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
        boolean isRejected = decision.error().filter(RequestRejectedException.class::isInstance).isPresent();
        isOpen = new AtomicBoolean(decision.allowed() && decision.code() != Code.OVER_LIMIT && !isRejected);
    }

    /** Returns the decision of the reserve. */
    public Decision decision() {
        return decision;
    }

    /** Returns whether to do the work. */
    public boolean allowed() {
        return decision.allowed();
    }

    /** Returns the ID of the hold. */
    public String id() {
        return reserved.getId();
    }

    /** Replaces the estimate with the cost of the work, which may be 0 or above the estimate. */
    public Decision commit(long hits) {
        CommitRequest request = CommitRequest.newBuilder()
            .setDomain(reserved.getDomain())
            .addAllDescriptors(reserved.getDescriptorsList())
            .setId(id())
            .setHits(TollgateClient.checkedHits(hits, 0))
            .build();
        return end(Methods.COMMIT, request);
    }

    /** Gives the hits back. A repeated call has no effect. */
    public Decision cancel() {
        return end(Methods.CANCEL, cancelRequest(reserved));
    }

    /** Gives the hold a new TTL, from now: that of the rule. */
    public Decision extend() {
        return extend(extendRequest().build());
    }

    /** Gives the hold a new TTL, from now. Throws {@link RequestRejectedException} (NOT_FOUND) if it has expired. */
    public Decision extend(Duration ttl) {
        return extend(extendRequest().setTtl(duration(ttl)).build());
    }

    /**
     * Cancels the hold unless it has ended, also if the caller's context is cancelled. On an interrupted thread, on which
     * gRPC would not call, it does not wait for the answer.
     */
    @Override
    public void close() {
        if (Thread.currentThread().isInterrupted()) {
            if (isOpen.compareAndSet(true, false)) {
                client.cancelLater(reserved, settings);
            }
            return;
        }
        try {
            Context.ROOT.run(this::cancel);
        } catch (TollgateException error) {
            // The hold expires. An exception here would hide that of the work.
        }
    }

    static CancelRequest cancelRequest(ReserveRequest reserved) {
        return CancelRequest.newBuilder()
            .setDomain(reserved.getDomain())
            .addAllDescriptors(reserved.getDescriptorsList())
            .setId(reserved.getId())
            .build();
    }

    static com.google.protobuf.Duration duration(Duration duration) {
        return com.google.protobuf.Duration.newBuilder()
            .setSeconds(duration.getSeconds())
            .setNanos(duration.getNano())
            .build();
    }

    private ExtendRequest.Builder extendRequest() {
        return ExtendRequest.newBuilder()
            .setDomain(reserved.getDomain())
            .addAllDescriptors(reserved.getDescriptorsList())
            .setId(id());
    }

    private Decision extend(ExtendRequest request) {
        return isOpen.get() ? client.call(Methods.EXTEND, request, settings) : decision;
    }

    private <T> Decision end(MethodDescriptor<T, RateLimitResponse> method, T request) {
        if (!isOpen.compareAndSet(true, false)) {
            return decision;
        }
        return client.call(method, request, settings);
    }
}
