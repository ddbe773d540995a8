package tollgate.client;

import io.grpc.Context;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
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
    private final AtomicReference<State> state;

    /** An end that had no answer may be sent again: within the TTL, an end with the ID is done once. */
    private enum State {
        OPEN,
        COMMIT_UNANSWERED,
        CANCEL_UNANSWERED,
        ENDED
    }

    Hold(TollgateClient client, ReserveRequest reserved, Decision decision, CallSettings settings) {
        this.client = client;
        this.reserved = reserved;
        this.decision = decision;
        this.settings = settings;
        // Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After
        // a denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
        boolean isRejected = decision.error().filter(RequestRejectedException.class::isInstance).isPresent();
        boolean isOpen = decision.allowed() && decision.code() != Code.OVER_LIMIT && !isRejected;
        state = new AtomicReference<>(isOpen ? State.OPEN : State.ENDED);
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

    /**
     * Replaces the estimate with the cost of the work, which may be 0 or above the estimate. Without an answer, it may be
     * called again within the TTL, as long as no other hold has the ID.
     */
    public Decision commit(long hits) {
        CommitRequest request = CommitRequest.newBuilder()
            .setDomain(reserved.getDomain())
            .addAllDescriptors(reserved.getDescriptorsList())
            .setId(id())
            .setHits(TollgateClient.checkedHits(hits, 0))
            .build();
        return end(State.COMMIT_UNANSWERED, () -> client.call(Methods.COMMIT, request, settings));
    }

    /** Gives the hits back. A repeated call has no effect. */
    public Decision cancel() {
        CancelRequest request = cancelRequest(reserved);
        return end(State.CANCEL_UNANSWERED, () -> client.call(Methods.CANCEL, request, settings));
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
            if (state.compareAndSet(State.OPEN, State.ENDED)) {
                client.cancelLater(reserved, settings);
            }
            return;
        }
        if (state.get() != State.OPEN) {
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
        return state.get() == State.OPEN ? client.call(Methods.EXTEND, request, settings) : decision;
    }

    private Decision end(State unanswered, Supplier<Decision> call) {
        if (!begins(unanswered)) {
            return decision;
        }
        boolean isAnswered = false;
        try {
            Decision ended = call.get();
            boolean isRejected = ended.error().filter(RequestRejectedException.class::isInstance).isPresent();
            isAnswered = isRejected || ended.code() != Code.UNDECIDED;
            return ended;
        } catch (RequestRejectedException rejected) {
            isAnswered = true;
            throw rejected;
        } finally {
            if (!isAnswered) {
                state.set(unanswered);
            }
        }
    }

    /** Returns whether an end is to be sent. */
    private boolean begins(State unanswered) {
        return state.compareAndSet(State.OPEN, State.ENDED) || state.compareAndSet(unanswered, State.ENDED);
    }
}
