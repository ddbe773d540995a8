package tollgate.client.examples;

import java.time.Duration;
import java.util.List;
import tollgate.client.CallSettings;
import tollgate.client.Decision;
import tollgate.client.Descriptor;
import tollgate.client.Hold;
import tollgate.client.RateLimitFilter;
import tollgate.client.TollgateClient;

/** Limits requests, and reserves the cost of work: {@code Shop TARGET}. The example of docs/services.md. */
public final class Shop {
    private Shop() {}

    static String buy(TollgateClient client, String user) {
        Decision decision = client.shouldRateLimit("shop", List.of(Descriptor.of("user", user)));
        if (!decision.allowed()) {
            return "denied";
        }
        return "allowed";
    }

    static String summarize(TollgateClient client, String tenant, long estimate) {
        try (Hold hold = client.reserve("shop", List.of(Descriptor.of("tenant", tenant)), estimate)) {
            if (!hold.allowed()) {
                return "denied";
            }
            long tokens = work();
            Decision decision = hold.commit(tokens);
            return decision.statuses().get(0).remaining() + " remaining";
        }
    }

    /** Returns the cost of a call of a language model, here a constant. */
    private static long work() {
        return 300;
    }

    static RateLimitFilter filter(TollgateClient client) {
        return new RateLimitFilter(
            client, "shop", request -> List.of(Descriptor.of("path", request.getRequestURI())));
    }

    public static void main(String[] args) {
        CallSettings settings = CallSettings.DEFAULT.withTimeout(Duration.ofSeconds(10));
        try (TollgateClient client = TollgateClient.builder(args[0]).defaults(settings).build()) {
            for (int call = 0; call < 3; call++) {
                System.err.println("result " + buy(client, "ann"));
            }
            System.err.println("result " + summarize(client, "a", 600));
        }
    }
}
