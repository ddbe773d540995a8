package tollgate

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tollgate.example/go/tollgate/tollgatev1"
)

// Hold is a number of hits that are reserved until they are committed or cancelled, or until their TTL.
type Hold struct {
	// Decision is the decision of the reserve.
	Decision Decision

	client   *Client
	context  context.Context
	reserved *tollgatev1.ReserveRequest
	settings callOptions
	state    atomic.Int32
}

// States of a hold. An end that had no answer may be sent again: within the TTL, an end with the ID is done once.
const (
	holdEnded int32 = iota
	holdOpen
	holdCommitUnanswered
	holdCancelUnanswered
)

// Reserve reserves an estimate. Defer Close, which cancels the hold unless it was committed. Errors are those of
// ShouldRateLimit.
func (c *Client) Reserve(ctx context.Context, domain string, descriptors []Descriptor, hits uint32, options ...CallOption) (*Hold, error) {
	if hits == 0 {
		return nil, ErrNoHits
	}
	settings := c.defaults.with(options)
	if settings.id == "" {
		settings.id = rand.Text()
	}
	request := &tollgatev1.ReserveRequest{
		Domain: domain, Descriptors: messages(descriptors), Id: settings.id, Hits: hits, Ttl: ttl(settings.ttl),
	}
	// A reserve that is not sent is not charged, and its cancel could end another hold with the same ID.
	isSent := ctx.Err() == nil
	var decision Decision
	err := checkText(domain, descriptors, settings.id)
	if err != nil {
		decision, err = fromError(ctx, err, settings.mode, settings.shadow)
	} else {
		decision, err = c.call(ctx, holdService+"Reserve", request, settings)
	}
	hold := &Hold{Decision: decision, client: c, context: context.WithoutCancel(ctx), reserved: request, settings: settings}
	isRejected := errors.Is(decision.Err, ErrRejected)
	if isSent && decision.Code == Undecided && !isRejected && !decision.Allowed {
		go hold.cancelUnknown()
	}
	if err != nil {
		return nil, err
	}
	// Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After a
	// denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
	if decision.Allowed && decision.Code != OverLimit && !isRejected {
		hold.state.Store(holdOpen)
	}
	return hold, nil
}

// ID returns the ID of the hold.
func (h *Hold) ID() string { return h.reserved.Id }

// Allowed reports whether to do the work.
func (h *Hold) Allowed() bool { return h.Decision.Allowed }

// Commit replaces the estimate with the cost of the work, which may be 0 or above the estimate. Without an answer, it may
// be called again within the TTL, as long as no other hold has the ID.
func (h *Hold) Commit(ctx context.Context, hits uint32) (Decision, error) {
	request := &tollgatev1.CommitRequest{
		Domain: h.reserved.Domain, Descriptors: h.reserved.Descriptors, Id: h.reserved.Id, Hits: hits,
	}
	return h.end(holdCommitUnanswered, func() (Decision, error) {
		return h.client.call(ctx, holdService+"Commit", request, h.settings)
	})
}

// Cancel gives the hits back. A repeated call has no effect.
func (h *Hold) Cancel(ctx context.Context) (Decision, error) {
	return h.end(holdCancelUnanswered, func() (Decision, error) { return h.cancel(ctx) })
}

// end makes a call that ends the hold, unless it has ended.
func (h *Hold) end(unanswered int32, call func() (Decision, error)) (Decision, error) {
	if !h.state.CompareAndSwap(holdOpen, holdEnded) && !h.state.CompareAndSwap(unanswered, holdEnded) {
		return h.Decision, nil
	}
	decision, err := call()
	isRejected := errors.Is(err, ErrRejected) || errors.Is(decision.Err, ErrRejected)
	if !isRejected && (err != nil || decision.Code == Undecided) {
		h.state.Store(unanswered)
	}
	return decision, err
}

// Extend gives the hold a new TTL, from now; with 0, that of the rule. The error matches ErrRejected, with the code
// NotFound, if the hold has expired.
func (h *Hold) Extend(ctx context.Context, duration time.Duration) (Decision, error) {
	if h.state.Load() != holdOpen {
		return h.Decision, nil
	}
	request := &tollgatev1.ExtendRequest{
		Domain: h.reserved.Domain, Descriptors: h.reserved.Descriptors, Id: h.reserved.Id, Ttl: ttl(duration),
	}
	return h.client.call(ctx, holdService+"Extend", request, h.settings)
}

// Close cancels the hold unless it has ended, also if the context of the reserve is cancelled. If that fails, the hold
// expires.
func (h *Hold) Close() error {
	if h.state.Load() != holdOpen {
		return nil
	}
	_, err := h.Cancel(h.context)
	return err
}

// cancelUnknown gives back what a reserve without an answer may have charged.
func (h *Hold) cancelUnknown() {
	// Without an answer, the hold expires.
	_, _ = h.cancel(h.context)
}

func (h *Hold) cancel(ctx context.Context) (Decision, error) {
	request := &tollgatev1.CancelRequest{
		Domain: h.reserved.Domain, Descriptors: h.reserved.Descriptors, Id: h.reserved.Id,
	}
	return h.client.call(ctx, holdService+"Cancel", request, h.settings)
}

func ttl(duration time.Duration) *durationpb.Duration {
	if duration == 0 {
		return nil
	}
	return durationpb.New(duration)
}
