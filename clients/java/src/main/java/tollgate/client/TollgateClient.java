package tollgate.client;

import com.google.protobuf.UInt64Value;
import envoy.extensions.common.ratelimit.v3.Ratelimit.RateLimitDescriptor;
import envoy.service.ratelimit.v3.Rls.RateLimitRequest;
import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import tollgate.v1.Hold.CancelRequest;
import tollgate.v1.Hold.ReserveRequest;

/** A connection to all replicas behind a name. Create one and share it: it is safe for concurrent use. */
public final class TollgateClient implements AutoCloseable {
    private static final long MAX_HITS = 0xffff_ffffL;
    private static final long RECONNECT_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final ManagedChannel channel;
    private final CallSettings defaults;
    private final AtomicLong reconnected = new AtomicLong(System.nanoTime());

    /** Proxies are answered otherwise: they show the lowest number that remains, and a missing wait as zero. */
    private static Metadata caller() {
        Metadata metadata = new Metadata();
        metadata.put(Metadata.Key.of("x-tollgate-caller", Metadata.ASCII_STRING_MARSHALLER), "service");
        return metadata;
    }

    private TollgateClient(ManagedChannel channel, CallSettings defaults) {
        this.channel = channel;
        this.defaults = defaults;
    }

    /**
     * Returns a builder of a client, which connects at its first call.
     *
     * @param target a name of gRPC, such as {@code dns:///tollgate.example:8081}; calls go to its addresses in turn
     */
    public static Builder builder(String target) {
        return new Builder(target);
    }

    /** Returns the settings of calls without their own. */
    public CallSettings defaults() {
        return defaults;
    }

    /** Returns the decision for a request of 1 hit. */
    public Decision shouldRateLimit(String domain, List<Descriptor> descriptors) {
        return shouldRateLimit(domain, descriptors, 1, defaults);
    }

    /** Returns the decision for a request. With 0 hits, it peeks without taking any. */
    public Decision shouldRateLimit(String domain, List<Descriptor> descriptors, long hits, CallSettings settings) {
        return call(Methods.SHOULD_RATE_LIMIT, request(domain, descriptors, hits), settings);
    }

    /** Returns the same without blocking. The future fails with the exceptions that the other method throws. */
    public CompletableFuture<Decision> shouldRateLimitAsync(
        String domain, List<Descriptor> descriptors, long hits, CallSettings settings) {
        return callAsync(Methods.SHOULD_RATE_LIMIT, request(domain, descriptors, hits), settings);
    }

    /** Reserves an estimate. Use the hold in {@code try}, which cancels it unless it was committed. */
    public Hold reserve(String domain, List<Descriptor> descriptors, long hits) {
        return reserve(domain, descriptors, hits, ReserveSettings.DEFAULT, defaults);
    }

    /** Reserves an estimate, with an ID or a TTL. */
    public Hold reserve(
        String domain, List<Descriptor> descriptors, long hits, ReserveSettings reserve, CallSettings settings) {
        ReserveRequest.Builder request = ReserveRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(Descriptor.messages(descriptors))
            .setId(reserve.id().orElseGet(() -> UUID.randomUUID().toString()))
            .setHits(checkedHits(hits, 1));
        reserve.ttl().map(Hold::duration).ifPresent(request::setTtl);
        ReserveRequest reserved = request.build();
        // A reserve that is not sent is not charged, and its cancel could end another hold with the same ID.
        boolean isSent = !Context.current().isCancelled();
        Decision decision;
        try {
            decision = call(Methods.RESERVE, reserved, settings);
        } catch (NoDecisionException error) {
            if (isSent) {
                cancelLater(reserved, defaults);
            }
            throw error;
        }
        if (isSent && !decision.allowed() && decision.code() == Code.UNDECIDED) {
            cancelLater(reserved, defaults);
        }
        return new Hold(this, reserved, decision, settings);
    }

    /** Closes the connections. */
    @Override
    public void close() {
        channel.shutdownNow();
    }

    <T> Decision call(MethodDescriptor<T, RateLimitResponse> method, T request, CallSettings settings) {
        reconnect();
        try {
            return Decision.of(ClientCalls.blockingUnaryCall(channel, method, options(settings), request), settings);
        } catch (StatusRuntimeException error) {
            return Decision.of(error, settings);
        }
    }

    private <T> CompletableFuture<Decision> callAsync(
        MethodDescriptor<T, RateLimitResponse> method, T request, CallSettings settings) {
        reconnect();
        CompletableFuture<Decision> future = new CompletableFuture<>();
        ClientCalls.asyncUnaryCall(channel.newCall(method, options(settings)), request, new StreamObserver<>() {
            @Override
            public void onNext(RateLimitResponse response) {
                try {
                    future.complete(Decision.of(response, settings));
                } catch (TollgateException thrown) {
                    future.completeExceptionally(thrown);
                }
            }

            @Override
            public void onError(Throwable error) {
                try {
                    future.complete(Decision.of(Status.fromThrowable(error).asRuntimeException(), settings));
                } catch (TollgateException thrown) {
                    future.completeExceptionally(thrown);
                }
            }

            @Override
            public void onCompleted() {}
        });
        return future;
    }

    /**
     * Connects again to replicas that are down, at most once a second: by itself, grpc-java waits up to two minutes. Calls
     * do not show which ones are down, since they go to the others.
     */
    private void reconnect() {
        long now = System.nanoTime();
        long last = reconnected.get();
        if (now - last >= RECONNECT_NANOS && reconnected.compareAndSet(last, now)) {
            channel.resetConnectBackoff();
        }
    }

    /** Gives back what a reserve has or may have charged, without waiting for it. */
    void cancelLater(ReserveRequest reserved, CallSettings settings) {
        CancelRequest request = Hold.cancelRequest(reserved);
        // The caller may be gone, with its context. Without an answer, the hold expires.
        Context.ROOT.run(() -> callAsync(Methods.CANCEL, request, settings));
    }

    private static CallOptions options(CallSettings settings) {
        return CallOptions.DEFAULT.withDeadlineAfter(settings.timeout().toNanos(), TimeUnit.NANOSECONDS);
    }

    private static RateLimitRequest request(String domain, List<Descriptor> descriptors, long hits) {
        RateLimitRequest.Builder request =
            RateLimitRequest.newBuilder().setDomain(domain).setHitsAddend(checkedHits(hits, 0));
        for (RateLimitDescriptor descriptor : Descriptor.messages(descriptors)) {
            // The protocol reads 0 as 1, except at a descriptor.
            request.addDescriptors(hits == 0 ? descriptor.toBuilder().setHitsAddend(UInt64Value.of(0)).build() : descriptor);
        }
        return request.build();
    }

    static int checkedHits(long hits, long least) {
        if (hits < least || hits > MAX_HITS) {
            throw new IllegalArgumentException("hits are " + least + " to " + MAX_HITS + "; found " + hits);
        }
        return (int) hits;
    }

    /** A builder of clients. */
    public static final class Builder {
        private final String target;
        private final List<ClientInterceptor> interceptors = new ArrayList<>();
        private ChannelCredentials credentials = InsecureChannelCredentials.create();
        private CallSettings defaults = CallSettings.DEFAULT;

        private Builder(String target) {
            this.target = target;
        }

        /** Sets TLS; the default is plaintext. */
        public Builder credentials(ChannelCredentials credentials) {
            this.credentials = credentials;
            return this;
        }

        /** Sets the settings of calls without their own. */
        public Builder defaults(CallSettings defaults) {
            this.defaults = defaults;
            return this;
        }

        /** Adds an interceptor, such as one that adds metadata. */
        public Builder intercept(ClientInterceptor interceptor) {
            interceptors.add(interceptor);
            return this;
        }

        /** Returns the client. */
        public TollgateClient build() {
            ManagedChannel channel = Grpc.newChannelBuilder(target, credentials)
                .defaultServiceConfig(Methods.SERVICE_CONFIG)
                // By default, gRPC never notices a peer that falls silent.
                .keepAliveTime(10, TimeUnit.SECONDS)
                .keepAliveTimeout(2, TimeUnit.SECONDS)
                .intercept(interceptors)
                .intercept(MetadataUtils.newAttachHeadersInterceptor(caller()))
                .build();
            return new TollgateClient(channel, defaults);
        }
    }
}
