package tollgate.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.Test;

class WarningsTest {
    @Test
    void whyRequestsAreRefusedIsLoggedOnceASecond() {
        Records records = new Records();
        Logger logger = Logger.getLogger("tollgate.client");
        logger.addHandler(records);
        try {
            NoDecisionException error =
                new NoDecisionException(Status.UNAVAILABLE.withDescription("connection refused").asRuntimeException());
            for (int call = 0; call < 100; call++) {
                Warnings.noDecision(error);
            }
        } finally {
            logger.removeHandler(records);
        }
        // A second may have passed meanwhile.
        assertTrue(!records.all.isEmpty() && records.all.size() < 100, records.all.toString());
        assertTrue(records.all.get(0).endsWith("connection refused"), records.all.toString());
    }

    private static final class Records extends Handler {
        private final List<String> all = new CopyOnWriteArrayList<>();

        @Override
        public void publish(LogRecord record) {
            all.add(new SimpleFormatter().formatMessage(record));
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }
}
