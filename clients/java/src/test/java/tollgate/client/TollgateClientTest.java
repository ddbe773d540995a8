package tollgate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Duration;
import envoy.service.ratelimit.v3.Rls.RateLimitResponse;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import tollgate.v1.Hold.ReserveRequest;

class TollgateClientTest {
    private static final CallSettings PATIENT =
        CallSettings.DEFAULT.withTimeout(java.time.Duration.ofMinutes(1));

    @Test
    void retryAfterIsTheLongestWaitOfThoseThatDeny() {
        RateLimitResponse response = RateLimitResponse.newBuilder()
            .setOverallCode(RateLimitResponse.Code.OVER_LIMIT)
            .addStatuses(status(RateLimitResponse.Code.OK, 90, 0))
            .addStatuses(status(RateLimitResponse.Code.OVER_LIMIT, 3, 500_000_000))
            .addStatuses(status(RateLimitResponse.Code.OVER_LIMIT, 2, 0))
            .build();
        Decision decision = Decision.of(response, CallSettings.DEFAULT);
        assertFalse(decision.allowed());
        assertEquals(Optional.of(java.time.Duration.ofMillis(3500)), decision.retryAfter());
        assertEquals(Optional.of("4"), decision.retryAfterHeader());
    }

    @Test
    void aDenialWithoutATimeHasNoRetryAfter() {
        RateLimitResponse response =
            RateLimitResponse.newBuilder().setOverallCode(RateLimitResponse.Code.OVER_LIMIT).build();
        Decision decision = Decision.of(response, CallSettings.DEFAULT);
        assertEquals(Optional.empty(), decision.retryAfterHeader());
    }

    @ParameterizedTest
    @EnumSource(value = Status.Code.class, mode = EnumSource.Mode.EXCLUDE, names = "OK")
    void eachStatusIsARejectionOrNoDecision(Status.Code code) {
        var cause = code.toStatus().withDescription("why").asRuntimeException();
        var error = assertThrows(TollgateException.class, () -> Decision.of(cause, CallSettings.DEFAULT));
        assertEquals(code, error.status().getCode());
        CallSettings open = CallSettings.DEFAULT.withFailureMode(FailureMode.OPEN);
        if (error instanceof NoDecisionException) {
            assertTrue(Decision.of(cause, open).allowed());
        } else {
            assertThrows(RequestRejectedException.class, () -> Decision.of(cause, open));
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {-1, 0x1_0000_0000L})
    void hitsOutOfRangeAreRefusedWithTheNumberFound(long hits) {
        try (TollgateClient client = TollgateClient.builder("127.0.0.1:1").build()) {
            List<Descriptor> descriptors = List.of(Descriptor.of("user", "ann"));
            var error = assertThrows(
                IllegalArgumentException.class, () -> client.shouldRateLimit("shop", descriptors, hits, PATIENT));
            assertTrue(error.getMessage().endsWith("found " + hits), error.getMessage());
        }
    }

    @Test
    void andLeavesTheDescriptorItExtends() {
        Descriptor plan = Descriptor.of("plan", "free");
        Descriptor both = plan.and("user", "ann");
        assertEquals(1, Descriptor.messages(List.of(plan)).get(0).getEntriesCount());
        assertEquals("ann", Descriptor.messages(List.of(both)).get(0).getEntries(1).getValue());
    }

    @Test
    void aCallThatWaitsDoesNotBlockAndFailsItsFuture() {
        try (TollgateClient client = TollgateClient.builder("127.0.0.1:1").build()) {
            var future = client.shouldRateLimitAsync("shop", List.of(Descriptor.of("user", "ann")), 1, PATIENT);
            var error = assertThrows(CompletionException.class, future::join);
            assertInstanceOf(NoDecisionException.class, error.getCause());
        }
    }

    @Test
    void aReserveWhoseContextIsCancelledIsGivenBack() throws Exception {
        BlockingQueue<String> reserved = new LinkedBlockingQueue<>();
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        Server server = holds((request, observer) -> reserved.add(request.getId()), cancelled);
        try (TollgateClient client =
            TollgateClient.builder("127.0.0.1:" + server.getPort()).defaults(PATIENT).build()) {
            Context.CancellableContext context = Context.current().withCancellation();
            Runnable reserve = () -> client.reserve("llm", List.of(Descriptor.of("tenant", "a")), 1);
            var hold = CompletableFuture.runAsync(context.wrap(reserve));
            String id = reserved.take();
            context.cancel(null);
            assertThrows(CompletionException.class, hold::join);
            assertEquals(id, cancelled.take());
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aReserveWhoseContextWasCancelledBeforeCancelsNothing() throws Exception {
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        Server server = holds(TollgateClientTest::answer, cancelled);
        List<Descriptor> descriptors = List.of(Descriptor.of("tenant", "a"));
        try (TollgateClient client =
            TollgateClient.builder("127.0.0.1:" + server.getPort()).defaults(PATIENT).build()) {
            Context.CancellableContext context = Context.current().withCancellation();
            context.cancel(null);
            ReserveSettings one = ReserveSettings.DEFAULT.withId("one");
            context.run(() -> assertThrows(
                NoDecisionException.class, () -> client.reserve("llm", descriptors, 1, one, PATIENT)));
            // A cancel in the background would arrive before.
            Hold hold = client.reserve("llm", descriptors, 1);
            hold.cancel();
            assertEquals(hold.id(), cancelled.take());
        } finally {
            server.shutdownNow();
        }
    }

    @Test
    void aHoldIsCancelledByAnInterruptedThread() throws Exception {
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        Server server = holds(TollgateClientTest::answer, cancelled);
        try (TollgateClient client =
            TollgateClient.builder("127.0.0.1:" + server.getPort()).defaults(PATIENT).build()) {
            Hold hold = client.reserve("llm", List.of(Descriptor.of("tenant", "a")), 1);
            Thread.currentThread().interrupt();
            hold.close();
            hold.close();
            assertTrue(Thread.interrupted());
            assertEquals(hold.id(), cancelled.poll(10, TimeUnit.SECONDS));
            assertEquals(List.of(), List.copyOf(cancelled));
        } finally {
            server.shutdownNow();
        }
    }

    /** Starts a service of holds, which records what is cancelled. */
    private static Server holds(
        ServerCalls.UnaryMethod<ReserveRequest, RateLimitResponse> reserve, BlockingQueue<String> cancelled)
        throws IOException {
        return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(ServerServiceDefinition.builder("tollgate.v1.HoldService")
                .addMethod(Methods.RESERVE, ServerCalls.asyncUnaryCall(reserve))
                .addMethod(Methods.CANCEL, ServerCalls.asyncUnaryCall((request, observer) -> {
                    cancelled.add(request.getId());
                    answer(request, observer);
                }))
                .build())
            .build()
            .start();
    }

    private static void answer(Object request, StreamObserver<RateLimitResponse> observer) {
        observer.onNext(RateLimitResponse.newBuilder().setOverallCode(RateLimitResponse.Code.OK).build());
        observer.onCompleted();
    }

    private static RateLimitResponse.DescriptorStatus status(RateLimitResponse.Code code, long seconds, int nanos) {
        return RateLimitResponse.DescriptorStatus.newBuilder()
            .setCode(code)
            .setDurationUntilReset(Duration.newBuilder().setSeconds(seconds).setNanos(nanos))
            .build();
    }
}
