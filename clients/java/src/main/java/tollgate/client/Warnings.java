package tollgate.client;

import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Logs why requests are refused without a decision, at most once a second, however many fail. */
final class Warnings {
    private static final Logger LOGGER = Logger.getLogger("tollgate.client");
    private static final long SECOND = 1_000_000_000;
    private static final AtomicLong NEXT = new AtomicLong(System.nanoTime());

    private Warnings() {}

    static void noDecision(NoDecisionException error) {
        long now = System.nanoTime();
        long next = NEXT.get();
        if (now - next >= 0 && NEXT.compareAndSet(next, now + SECOND)) {
            LOGGER.log(Level.WARNING, "No rate limit decision, the request is refused: {0}", error.getMessage());
        }
    }
}
