package tollgate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCalls;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class RateLimitInterceptorTest {
    private static final CallSettings PATIENT = CallSettings.DEFAULT.withTimeout(Duration.ofMinutes(1));

    @Test
    void aHandlerThatFailsToStartEndsItsCall() throws Exception {
        assertEquals(Status.Code.UNKNOWN, closedWith((call, metadata) -> {
            throw new IllegalArgumentException("why");
        }));
    }

    @Test
    void aHandlerThatFailsOnAnEventBeforeTheDecisionEndsItsCall() throws Exception {
        assertEquals(Status.Code.UNKNOWN, closedWith((call, metadata) -> new ServerCall.Listener<>() {
            @Override
            public void onHalfClose() {
                throw new AssertionError("why");
            }
        }));
    }

    @Test
    void aHandlerThatFailsAfterItClosedTheCallClosesItOnce() throws Exception {
        assertEquals(Status.Code.OK, closedWith((call, metadata) -> {
            call.close(Status.OK, new Metadata());
            throw new IllegalArgumentException("why");
        }));
    }

    /** Returns the status of a call that is half-closed before it is allowed. */
    private static Status.Code closedWith(ServerCallHandler<RateLimitResponse, RateLimitResponse> handler)
        throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        Server service = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(ServerServiceDefinition.builder("envoy.service.ratelimit.v3.RateLimitService")
                .addMethod(Methods.SHOULD_RATE_LIMIT, ServerCalls.asyncUnaryCall((request, observer) -> {
                    await(mayAnswer);
                    observer.onNext(RateLimitResponse.newBuilder().setOverallCode(RateLimitResponse.Code.OK).build());
                    observer.onCompleted();
                }))
                .build())
            .build()
            .start();
        try (TollgateClient client =
            TollgateClient.builder("127.0.0.1:" + service.getPort()).defaults(PATIENT).build()) {
            RecordedCall call = new RecordedCall();
            new RateLimitInterceptor(client, "shop", (method, metadata) -> List.of(Descriptor.of("user", "ann")))
                .interceptCall(call, new Metadata(), handler)
                .onHalfClose();
            mayAnswer.countDown();
            Status status = call.closed.poll(10, TimeUnit.SECONDS);
            return status == null ? null : status.getCode();
        } finally {
            service.shutdownNow();
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A call that records the status with which it is closed, once. */
    private static final class RecordedCall extends ServerCall<RateLimitResponse, RateLimitResponse> {
        final BlockingQueue<Status> closed = new LinkedBlockingQueue<>();
        private boolean isClosed;

        @Override
        public void close(Status status, Metadata trailers) {
            if (isClosed) {
                throw new IllegalStateException("call already closed");
            }
            isClosed = true;
            closed.add(status);
        }

        @Override
        public MethodDescriptor<RateLimitResponse, RateLimitResponse> getMethodDescriptor() {
            MethodDescriptor.Marshaller<RateLimitResponse> marshaller = Methods.CANCEL.getResponseMarshaller();
            return MethodDescriptor.<RateLimitResponse, RateLimitResponse>newBuilder()
                .setType(MethodDescriptor.MethodType.UNARY)
                .setFullMethodName("a.B/C")
                .setRequestMarshaller(marshaller)
                .setResponseMarshaller(marshaller)
                .build();
        }

        @Override
        public void request(int count) {}

        @Override
        public void sendHeaders(Metadata headers) {}

        @Override
        public void sendMessage(RateLimitResponse message) {}

        @Override
        public boolean isCancelled() {
            return false;
        }
    }
}
