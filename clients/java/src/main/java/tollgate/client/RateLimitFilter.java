package tollgate.client;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.function.Function;

/**
 * Limits the requests of a servlet container. A denied one is answered with 429 and {@code Retry-After}; without a
 * decision, with 503, for a reason that the logger {@code tollgate.client} has, at most once a second.
 */
public final class RateLimitFilter implements Filter {
    private final TollgateClient client;
    private final String domain;
    private final Function<HttpServletRequest, List<Descriptor>> descriptors;
    private final CallSettings settings;

    /** Creates a filter with the client's settings. */
    public RateLimitFilter(
        TollgateClient client, String domain, Function<HttpServletRequest, List<Descriptor>> descriptors) {
        this(client, domain, descriptors, client.defaults());
    }

    /**
     * Creates a filter.
     *
     * @param descriptors maps a request to descriptors; with none, the request is not limited
     */
    public RateLimitFilter(
        TollgateClient client,
        String domain,
        Function<HttpServletRequest, List<Descriptor>> descriptors,
        CallSettings settings) {
        this.client = client;
        this.domain = domain;
        this.descriptors = descriptors;
        this.settings = settings;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
        throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest http) || !(response instanceof HttpServletResponse answer)) {
            chain.doFilter(request, response);
            return;
        }
        List<Descriptor> found = descriptors.apply(http);
        if (found.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        Decision decision;
        try {
            decision = client.shouldRateLimit(domain, found, 1, settings);
        } catch (NoDecisionException error) {
            Warnings.noDecision(error);
            writeProblem(answer, HttpServletResponse.SC_SERVICE_UNAVAILABLE, "Service Unavailable");
            return;
        }
        decision.headers().forEach(header -> answer.addHeader(header.getKey(), header.getValue()));
        if (decision.allowed()) {
            chain.doFilter(request, response);
            return;
        }
        decision.retryAfterHeader().ifPresent(seconds -> answer.setHeader("Retry-After", seconds));
        writeProblem(answer, 429, "Too Many Requests");
    }

    /** Answers with a problem of RFC 9457. */
    private static void writeProblem(HttpServletResponse response, int status, String title) throws IOException {
        response.setStatus(status);
        response.setContentType("application/problem+json");
        response.getOutputStream()
            .print("{\"type\":\"about:blank\",\"title\":\"" + title + "\",\"status\":" + status + "}");
    }
}
