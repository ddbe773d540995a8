package tollgate.client;

import com.google.protobuf.Any;
import com.google.rpc.RetryInfo;
import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.protobuf.ProtoUtils;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletionException;
import java.util.function.BiFunction;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Limits the calls of a gRPC server, without blocking its threads. A denied one ends with {@code RESOURCE_EXHAUSTED}, a
 * {@code RetryInfo} and the trailer {@code retry-after}; without a decision, with {@code UNAVAILABLE}.
 */
public final class RateLimitInterceptor implements ServerInterceptor {
    private static final Logger LOGGER = Logger.getLogger(RateLimitInterceptor.class.getName());
    private static final Metadata.Key<String> RETRY_AFTER =
        Metadata.Key.of("retry-after", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<com.google.rpc.Status> DETAILS = Metadata.Key.of(
        "grpc-status-details-bin", ProtoUtils.metadataMarshaller(com.google.rpc.Status.getDefaultInstance()));

    private final TollgateClient client;
    private final String domain;
    private final BiFunction<String, Metadata, List<Descriptor>> descriptors;
    private final CallSettings settings;

    /** Creates an interceptor with the client's settings. */
    public RateLimitInterceptor(
        TollgateClient client, String domain, BiFunction<String, Metadata, List<Descriptor>> descriptors) {
        this(client, domain, descriptors, client.defaults());
    }

    /**
     * Creates an interceptor.
     *
     * @param descriptors maps the name of a method, such as {@code package.Service/Method}, and the metadata of a call to
     *     descriptors; with none, the call is not limited
     */
    public RateLimitInterceptor(
        TollgateClient client,
        String domain,
        BiFunction<String, Metadata, List<Descriptor>> descriptors,
        CallSettings settings) {
        this.client = client;
        this.domain = domain;
        this.descriptors = descriptors;
        this.settings = settings;
    }

    @Override
    public <I, O> ServerCall.Listener<I> interceptCall(
        ServerCall<I, O> call, Metadata metadata, ServerCallHandler<I, O> next) {
        List<Descriptor> found = descriptors.apply(call.getMethodDescriptor().getFullMethodName(), metadata);
        if (found.isEmpty()) {
            return next.startCall(call, metadata);
        }
        DelayedListener<I> listener = new DelayedListener<>();
        Context context = Context.current();
        client.shouldRateLimitAsync(domain, found, 1, settings).whenComplete((decision, error) -> context.run(() -> {
            try {
                if (error != null) {
                    call.close(status(error), new Metadata());
                } else if (!decision.allowed()) {
                    deny(call, decision);
                } else {
                    listener.start(next.startCall(withHeaders(call, decision), metadata));
                }
            } catch (Throwable thrown) {
                fail(call, thrown);
            }
        }));
        return listener;
    }

    /** Ends a call whose handler failed, as gRPC does: the future of the decision would ignore the exception. */
    private static void fail(ServerCall<?, ?> call, Throwable thrown) {
        LOGGER.log(Level.SEVERE, "Exception of a handler of " + call.getMethodDescriptor().getFullMethodName(), thrown);
        try {
            call.close(Status.UNKNOWN.withDescription("application error").withCause(thrown), new Metadata());
        } catch (IllegalStateException closed) {
            // The handler closed the call before it failed.
        }
    }

    private static Status status(Throwable error) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        if (cause instanceof NoDecisionException none) {
            Warnings.noDecision(none);
            return Status.UNAVAILABLE.withDescription("no decision of the rate limit service");
        }
        return Status.INTERNAL.withDescription("the rate limit service rejects the request");
    }

    private static void deny(ServerCall<?, ?> call, Decision decision) {
        Status status = Status.RESOURCE_EXHAUSTED.withDescription("over the rate limit");
        Metadata trailers = headers(decision);
        decision.retryAfterHeader().ifPresent(seconds -> trailers.put(RETRY_AFTER, seconds));
        decision.retryAfter().ifPresent(wait -> {
            RetryInfo info = RetryInfo.newBuilder().setRetryDelay(Hold.duration(wait)).build();
            trailers.put(DETAILS, com.google.rpc.Status.newBuilder()
                .setCode(status.getCode().value())
                .setMessage(status.getDescription())
                .addDetails(Any.pack(info))
                .build());
        });
        call.close(status, trailers);
    }

    private static <I, O> ServerCall<I, O> withHeaders(ServerCall<I, O> call, Decision decision) {
        if (decision.headers().isEmpty()) {
            return call;
        }
        return new SimpleForwardingServerCall<>(call) {
            @Override
            public void sendHeaders(Metadata own) {
                own.merge(headers(decision));
                super.sendHeaders(own);
            }
        };
    }

    private static Metadata headers(Decision decision) {
        Metadata headers = new Metadata();
        decision.headers().forEach(header -> {
            String name = header.getKey().toLowerCase(Locale.ROOT);
            headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), header.getValue());
        });
        return headers;
    }
}
