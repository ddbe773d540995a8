package tollgate

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Middleware limits the requests of an HTTP server. A denied one is answered with 429 and Retry-After; without a
// decision, with 503, for a reason that is logged by [slog], at most once a second.
//
// describe maps a request to descriptors; with none, the request is not limited.
func Middleware(client *Client, domain string, describe func(*http.Request) []Descriptor, options ...CallOption) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			descriptors := describe(r)
			if len(descriptors) == 0 {
				next.ServeHTTP(w, r)
				return
			}
			decision, err := client.ShouldRateLimit(r.Context(), domain, descriptors, options...)
			for _, header := range decision.Headers {
				w.Header().Add(header.Name, header.Value)
			}
			switch {
			case errors.Is(err, ErrRejected):
				writeProblem(w, http.StatusInternalServerError)
			case err != nil:
				warnings.noDecision(err)
				writeProblem(w, http.StatusServiceUnavailable)
			case !decision.Allowed:
				if seconds := decision.RetryAfterSeconds(); seconds != "" {
					w.Header().Set("Retry-After", seconds)
				}
				writeProblem(w, http.StatusTooManyRequests)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

// writeProblem answers with a problem of RFC 9457.
func writeProblem(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// A client that is gone gets no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status})
}
