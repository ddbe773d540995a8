package tollgate

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// warnings are those of the middleware and the interceptors of this process.
var warnings = limitedWarnings{begun: time.Now()}

// limitedWarnings logs at most one line a second, however many requests fail.
type limitedWarnings struct {
	begun time.Time
	// next is the time since begun from which a line is logged again.
	next atomic.Int64
}

// noDecision logs why there is no decision. A caller that has ended its request is no reason to log.
func (w *limitedWarnings) noDecision(err error) {
	now, next := int64(time.Since(w.begun)), w.next.Load()
	if errors.Is(err, ErrNoDecision) && now >= next && w.next.CompareAndSwap(next, now+int64(time.Second)) {
		slog.Warn("no rate limit decision; the request is refused", "error", err)
	}
}
