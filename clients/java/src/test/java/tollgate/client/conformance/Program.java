package tollgate.client.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import io.grpc.TlsChannelCredentials;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import tollgate.client.CallSettings;
import tollgate.client.Decision;
import tollgate.client.Descriptor;
import tollgate.client.FailureMode;
import tollgate.client.Hold;
import tollgate.client.NoDecisionException;
import tollgate.client.RequestRejectedException;
import tollgate.client.ReserveSettings;
import tollgate.client.TollgateClient;

/** Runs the cases of clients/conformance: reads calls as JSON lines from standard input, and writes what is seen. */
public final class Program {
    private final Map<String, Hold> holds = new HashMap<>();
    private final Servers servers;
    private TollgateClient client;

    private Program(Servers servers) {
        this.servers = servers;
    }

    /** A call of a case. */
    static final class Call {
        String op;
        String target;
        String ca;
        String domain = "test";
        List<List<List<String>>> descriptors;
        long hits = 1;
        Long timeout_ms;
        String failure_mode;
        Boolean shadow;
        int count;
        int concurrency;
        String hold;
        String id;
        Long ttl_ms;
        boolean fails;
        String integration;

        List<Descriptor> descriptors() {
            return descriptors.stream().map(Call::descriptor).toList();
        }

        private static Descriptor descriptor(List<List<String>> entries) {
            Descriptor descriptor = Descriptor.of(entries.get(0).get(0), entries.get(0).get(1));
            for (List<String> entry : entries.subList(1, entries.size())) {
                descriptor = descriptor.and(entry.get(0), entry.get(1));
            }
            return descriptor;
        }

        CallSettings settings(CallSettings defaults) {
            CallSettings settings = defaults;
            if (timeout_ms != null) {
                settings = settings.withTimeout(Duration.ofMillis(timeout_ms));
            }
            if (failure_mode != null) {
                settings = settings.withFailureMode(FailureMode.valueOf(failure_mode.toUpperCase(Locale.ROOT)));
            }
            return shadow == null ? settings : settings.withShadow(shadow);
        }

        ReserveSettings reserveSettings() {
            ReserveSettings settings = ReserveSettings.DEFAULT;
            settings = id == null ? settings : settings.withId(id);
            return ttl_ms == null ? settings : settings.withTtl(Duration.ofMillis(ttl_ms));
        }
    }

    /** The exception of the work that a hold is for. */
    private static final class WorkException extends RuntimeException {}

    public static void main(String[] args) throws Exception {
        Gson gson = new GsonBuilder().serializeNulls().create();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Servers servers = new Servers();
        Program program = new Program(servers);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            output.println(gson.toJson(program.run(gson.fromJson(line, Call.class))));
        }
        servers.delete();
        // Tomcat leaves threads that are no daemons.
        System.exit(0);
    }

    private Map<String, ?> run(Call call) throws Exception {
        try {
            return answer(call);
        } catch (RequestRejectedException error) {
            return Map.of("raised", "rejected", "status", error.status().getCode().name());
        } catch (NoDecisionException error) {
            return Map.of("raised", "no_decision", "status", error.status().getCode().name());
        } catch (WorkException error) {
            return Map.of("raised", "work");
        } catch (IllegalArgumentException error) {
            return Map.of("raised", "invalid");
        }
    }

    private Map<String, ?> answer(Call call) throws Exception {
        switch (call.op) {
            case "open" -> {
                TollgateClient.Builder builder =
                    TollgateClient.builder(call.target).defaults(call.settings(CallSettings.DEFAULT));
                if (call.ca != null && !call.ca.isEmpty()) {
                    builder.credentials(TlsChannelCredentials.newBuilder().trustManager(new File(call.ca)).build());
                }
                client = builder.build();
            }
            case "close" -> {
                servers.stop();
                client.close();
            }
            case "should_rate_limit" -> {
                CallSettings settings = call.settings(client.defaults());
                return seen(client.shouldRateLimit(call.domain, call.descriptors(), call.hits, settings));
            }
            case "many" -> {
                return Map.of("counts", many(call));
            }
            case "reserve" -> {
                CallSettings settings = call.settings(client.defaults());
                Hold hold =
                    client.reserve(call.domain, call.descriptors(), call.hits, call.reserveSettings(), settings);
                holds.put(call.hold, hold);
                return seen(hold.decision());
            }
            case "commit" -> {
                return seen(holds.get(call.hold).commit(call.hits));
            }
            case "cancel" -> {
                return seen(holds.get(call.hold).cancel());
            }
            case "extend" -> {
                Hold hold = holds.get(call.hold);
                return seen(call.ttl_ms == null ? hold.extend() : hold.extend(Duration.ofMillis(call.ttl_ms)));
            }
            case "leave" -> leave(call);
            case "serve" -> {
                CallSettings settings = call.settings(client.defaults());
                return Map.of("address", servers.serve(call.integration, client, settings));
            }
            default -> throw new IllegalStateException("unknown call " + call.op);
        }
        return Map.of();
    }

    /** Ends the scope of a hold, of which the work may have failed. */
    private void leave(Call call) {
        try (Hold hold = holds.remove(call.hold)) {
            if (call.fails) {
                throw new WorkException();
            }
        }
    }

    /** Makes half of the calls without blocking. */
    private Map<String, Integer> many(Call call) {
        CallSettings settings = call.settings(client.defaults());
        List<Descriptor> descriptors = call.descriptors();
        Map<String, Integer> counts = new ConcurrentHashMap<>();
        ExecutorService callers = Executors.newFixedThreadPool(call.concurrency);
        CompletableFuture<?>[] calls = new CompletableFuture<?>[call.count];
        for (int number = 0; number < call.count; number++) {
            boolean isAsync = number % 2 == 0;
            calls[number] = CompletableFuture.runAsync(() -> {
                Decision decision = isAsync
                    ? client.shouldRateLimitAsync(call.domain, descriptors, 1, settings).join()
                    : client.shouldRateLimit(call.domain, descriptors, 1, settings);
                counts.merge(decision.code().name(), 1, Integer::sum);
            }, callers);
        }
        CompletableFuture.allOf(calls).join();
        callers.shutdown();
        return new TreeMap<>(counts);
    }

    private static Map<String, ?> seen(Decision decision) {
        Map<String, Object> seen = new HashMap<>();
        seen.put("allowed", decision.allowed());
        seen.put("code", decision.code().name());
        seen.put("codes", decision.statuses().stream().map(status -> status.code().name()).toList());
        seen.put("limit", decision.statuses().stream()
            .map(status -> status.limit().isPresent() ? status.limit().getAsLong() : null)
            .toList());
        seen.put("remaining", decision.statuses().stream().map(Decision.DescriptorStatus::remaining).toList());
        seen.put("retry_after_ms", decision.retryAfter().map(Duration::toMillis).orElse(null));
        Map<String, String> headers = new HashMap<>();
        decision.headers().forEach(header -> headers.put(header.getKey().toLowerCase(Locale.ROOT), header.getValue()));
        seen.put("headers", headers);
        seen.put("error", decision.error().map(error -> error.status().getCode().name()).orElse(null));
        return seen;
    }
}
