import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/**
 * A client by grpc-java, for tests/clients: {@code Client TARGET SCENARIO [ARGUMENT...]}.
 *
 * <p>Each result is a line of standard error that begins with "result ".
 */
public final class Client {
    /** Concurrent calls of a scenario that makes many. */
    private static final int CONCURRENCY = 8;
    /** Calls that are cancelled as soon as they are begun. */
    private static final int RACES = 100;

    private static final String METHOD = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    private static final MethodDescriptor<byte[], byte[]> SHOULD_RATE_LIMIT =
        method(METHOD, MethodDescriptor.MethodType.UNARY);

    private final ManagedChannel channel;

    private Client(ManagedChannel channel) {
        this.channel = channel;
    }

    public static void main(String[] args) throws Exception {
        ManagedChannel channel = Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
        Client client = new Client(channel);
        switch (args[1]) {
            case "hit" -> client.hit(CallOptions.DEFAULT, args[2], Integer.parseInt(args[3]));
            case "gzip" -> client.hit(CallOptions.DEFAULT.withCompression("gzip"), args[2], Integer.parseInt(args[3]));
            case "deadline" -> client.deadline();
            case "cancel" -> client.cancel();
            case "check" -> client.check();
            case "watch" -> client.watch();
            case "sized" -> client.sized(Integer.parseInt(args[2]));
            case "many" -> client.many(Integer.parseInt(args[2]));
            case "load" -> client.load(Integer.parseInt(args[2]));
            default -> throw new IllegalArgumentException(args[1]);
        }
        channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    }

    /** A RateLimitRequest by hand, so that nothing has to be generated: domain 1, descriptors 2, entries 1, key 1, value 2. */
    private static byte[] request(String key, String value) {
        byte[] entry = concatenated(field(1, bytes(key)), field(2, bytes(value)));
        return concatenated(field(1, bytes("test")), field(2, field(1, entry)));
    }

    private static byte[] field(int number, byte[] value) {
        ByteArrayOutputStream field = new ByteArrayOutputStream();
        field.write(number << 3 | 2);
        int rest = value.length;
        for (; rest >= 0x80; rest >>>= 7) {
            field.write(rest & 0x7f | 0x80);
        }
        field.write(rest);
        field.writeBytes(value);
        return field.toByteArray();
    }

    private static byte[] concatenated(byte[] first, byte[] second) {
        ByteArrayOutputStream both = new ByteArrayOutputStream();
        both.writeBytes(first);
        both.writeBytes(second);
        return both.toByteArray();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** The overall code, which is the first field of a RateLimitResponse. */
    private static String decision(byte[] response) {
        return response[1] == 1 ? "OK" : "OVER_LIMIT";
    }

    /** Returns the decision, or the status of a call that failed. */
    private String decide(CallOptions options, byte[] request) {
        try {
            return decision(ClientCalls.blockingUnaryCall(channel, SHOULD_RATE_LIMIT, options, request));
        } catch (StatusRuntimeException error) {
            return error.getStatus().getCode().name();
        }
    }

    private void hit(CallOptions options, String value, int count) {
        for (int number = 0; number < count; number++) {
            result(decide(options, request("user", value)));
        }
    }

    /** Asks for what no limit applies to, so that no store is needed. */
    private void free() {
        result(decide(CallOptions.DEFAULT, request("free", "x")));
    }

    /** Begins a call without its message, which cannot be answered in time. */
    private void deadline() throws InterruptedException {
        free();
        CompletableFuture<String> answer = new CompletableFuture<>();
        begin(CallOptions.DEFAULT.withDeadlineAfter(100, TimeUnit.MILLISECONDS), answer);
        result(answer.join());
        free();
    }

    private ClientCall<byte[], byte[]> begin(CallOptions options, CompletableFuture<String> answer) {
        var call = channel.newCall(method(METHOD, MethodDescriptor.MethodType.CLIENT_STREAMING), options);
        call.start(new ClientCall.Listener<>() {
            @Override
            public void onClose(Status status, Metadata trailers) {
                answer.complete(status.getCode().name());
            }
        }, new Metadata());
        return call;
    }

    /** Cancels a call that waits for its message, and calls wherever they are by then. */
    private void cancel() throws InterruptedException {
        free();
        CompletableFuture<String> waiting = new CompletableFuture<>();
        ClientCall<byte[], byte[]> waits = begin(CallOptions.DEFAULT, waiting);
        free();
        waits.cancel("enough", null);
        result(waiting.join());
        for (int number = 0; number < RACES; number++) {
            var call = channel.newCall(SHOULD_RATE_LIMIT, CallOptions.DEFAULT);
            var answer = ClientCalls.futureUnaryCall(call, request("user", "ann"));
            answer.cancel(true);
            try {
                answer.get();
            } catch (CancellationException error) {
                // As it should be.
            } catch (ExecutionException error) {
                result(Status.fromThrowable(error).getCode().name());
            }
        }
        free();
    }

    private void check() {
        MethodDescriptor<byte[], byte[]> method = method("grpc.health.v1.Health/Check", MethodDescriptor.MethodType.UNARY);
        result(servingStatus(ClientCalls.blockingUnaryCall(channel, method, CallOptions.DEFAULT, new byte[0])));
    }

    private void watch() {
        var method = method("grpc.health.v1.Health/Watch", MethodDescriptor.MethodType.SERVER_STREAMING);
        try {
            ClientCalls.blockingServerStreamingCall(channel, method, CallOptions.DEFAULT, new byte[0])
                .forEachRemaining(message -> result(servingStatus(message)));
        } catch (StatusRuntimeException error) {
            System.err.println(error);
        }
        result("end");
    }

    /** The messages of health are short enough to be read by hand: field 1 is the status. */
    private static String servingStatus(byte[] message) {
        return message[1] == 1 ? "SERVING" : "NOT_SERVING";
    }

    /** Sends a message of exactly so many bytes. */
    private void sized(int size) {
        int length = 0;
        while (request("user", "v".repeat(length)).length < size) {
            int missing = size - request("user", "v".repeat(length)).length;
            length += Math.max(1, missing - 12);
        }
        byte[] request = request("user", "v".repeat(length));
        if (request.length != size) {
            throw new IllegalArgumentException("there is no message of this size");
        }
        result(decide(CallOptions.DEFAULT, request));
    }

    private void many(int count) throws InterruptedException {
        AtomicInteger left = new AtomicInteger(count);
        tally(() -> left.getAndDecrement() > 0);
    }

    private void load(int milliseconds) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
        tally(() -> System.nanoTime() < end);
    }

    /** Calls while there is more to do, and prints how often each result came. */
    private void tally(BooleanSupplier more) throws InterruptedException {
        Map<String, Integer> counts = new TreeMap<>();
        List<Thread> callers = new ArrayList<>();
        for (int number = 0; number < CONCURRENCY; number++) {
            Thread caller = new Thread(() -> {
                while (more.getAsBoolean()) {
                    String answer = decide(CallOptions.DEFAULT, request("free", "x"));
                    synchronized (counts) {
                        counts.merge(answer, 1, Integer::sum);
                    }
                }
            });
            caller.start();
            callers.add(caller);
        }
        for (Thread caller : callers) {
            caller.join();
        }
        counts.forEach((answer, count) -> result(answer + " " + count));
    }

    private static MethodDescriptor<byte[], byte[]> method(String name, MethodDescriptor.MethodType type) {
        return MethodDescriptor.newBuilder(new Bytes(), new Bytes()).setFullMethodName(name).setType(type).build();
    }

    private static void result(String line) {
        System.err.println("result " + line);
    }

    /** Messages as they are on the wire. */
    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] message) {
            return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
