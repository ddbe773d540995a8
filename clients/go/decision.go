package tollgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Code is an answer of the service.
type Code int

const (
	// Undecided means that the service did not decide; see Decision.Err.
	Undecided Code = iota
	// OK means that the request is within its limits, or has none.
	OK
	// OverLimit means that the service denied the request.
	OverLimit
)

// String returns the name of the code, as in Envoy's protocol.
func (c Code) String() string {
	switch c {
	case OK:
		return "OK"
	case OverLimit:
		return "OVER_LIMIT"
	default:
		return "UNDECIDED"
	}
}

// FailureMode determines the result of a call without a decision. A decision of the service always applies, also one by
// on_store_error.
type FailureMode int

const (
	// FailService returns ErrNoDecision: only the service decides. It is the default.
	FailService FailureMode = iota
	// FailOpen allows the request.
	FailOpen
	// FailClosed denies the request.
	FailClosed
)

var (
	// ErrNoDecision matches errors of calls that the service did not decide: it cannot be reached, was too late, or its
	// store failed.
	ErrNoDecision = errors.New("tollgate: no decision")
	// ErrRejected matches errors of requests that the service refuses, which a retry does not change: they are not valid,
	// or not permitted. The failure mode does not apply to them: a request that is never valid would never be limited.
	ErrRejected = errors.New("tollgate: request rejected")
)

// callError is an error of the service, or of the connection to it.
type callError struct {
	kind   error
	status *status.Status
}

func (e *callError) Error() string {
	return fmt.Sprintf("%v: %v: %s", e.kind, e.status.Code(), e.status.Message())
}

func (e *callError) Unwrap() error { return e.kind }

// GRPCStatus makes status.FromError and status.Code work.
func (e *callError) GRPCStatus() *status.Status { return e.status }

// Status is the status of one descriptor.
type Status struct {
	Code Code
	// HasLimit reports whether a limit applies.
	HasLimit bool
	// Limit is the amount of the limit.
	Limit uint32
	// Remaining is the number of hits that remain; if over limit, fewer than were asked for.
	Remaining uint32
	// ResetAfter is the time until the counter is reset or, if over limit, until the hits may be admitted; 0 if they never
	// are.
	ResetAfter time.Duration
}

// Header is a header for the caller's own response.
type Header struct{ Name, Value string }

// Decision is the decision for a request. Being over the limit is a value, not an error.
type Decision struct {
	// Allowed reports whether to continue. It is true in shadow mode, and by FailOpen without a decision.
	Allowed bool
	// Code is the answer of the service.
	Code Code
	// Statuses has one status for each descriptor, in order; it is empty without a decision.
	Statuses []Status
	// RetryAfter is the time after which to try again; 0 if it is unknown, the request is not over limit, or a retry is
	// never admitted.
	RetryAfter time.Duration
	// Headers are for the caller's own response, if the service is configured to send them.
	Headers []Header
	// Err is the reason, if the service did not decide.
	Err error
}

// RetryAfterSeconds returns the value of the HTTP header Retry-After: whole seconds, rounded up; 1 without a decision. It
// is empty if the service says no time, since a retry is never admitted.
func (d Decision) RetryAfterSeconds() string {
	if d.RetryAfter == 0 && d.Code != Undecided {
		return ""
	}
	return strconv.FormatInt(max(1, int64(math.Ceil(d.RetryAfter.Seconds()))), 10)
}

// fromResponse returns the decision of a response. One without a known code is none.
func fromResponse(ctx context.Context, response *rls.RateLimitResponse, mode FailureMode, shadow bool) (Decision, error) {
	switch code := response.GetOverallCode(); code {
	case rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT:
	default:
		return fromError(ctx, status.Errorf(codes.Internal, "the answer has the unknown code %d", code), mode, shadow)
	}
	decision := Decision{Code: codeOf(response.GetOverallCode())}
	decision.Allowed = shadow || decision.Code == OK
	isUnknown := false
	for _, found := range response.GetStatuses() {
		status := Status{
			Code:       codeOf(found.GetCode()),
			HasLimit:   found.GetCurrentLimit() != nil,
			Limit:      found.GetCurrentLimit().GetRequestsPerUnit(),
			Remaining:  found.GetLimitRemaining(),
			ResetAfter: found.GetDurationUntilReset().AsDuration(),
		}
		decision.Statuses = append(decision.Statuses, status)
		if decision.Code == OverLimit && status.Code == OverLimit {
			isUnknown = isUnknown || status.ResetAfter == 0
			decision.RetryAfter = max(decision.RetryAfter, status.ResetAfter)
		}
	}
	// The wait for one of them is never over, or unknown.
	if isUnknown {
		decision.RetryAfter = 0
	}
	for _, header := range response.GetResponseHeadersToAdd() {
		decision.Headers = append(decision.Headers, Header{header.GetKey(), header.GetValue()})
	}
	return decision, nil
}

func codeOf(code rls.RateLimitResponse_Code) Code {
	if code == rls.RateLimitResponse_OVER_LIMIT {
		return OverLimit
	}
	return OK
}

// fromError returns the decision for a call that failed, or its error. A caller that is gone gets no decision.
func fromError(ctx context.Context, err error, mode FailureMode, shadow bool) (Decision, error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return Decision{}, ctx.Err()
	}
	failed := &callError{ErrNoDecision, status.Convert(err)}
	switch failed.status.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		failed.kind = ErrRejected
	}
	if shadow {
		return Decision{Allowed: true, Err: failed}, nil
	}
	if failed.kind == ErrRejected || mode == FailService {
		return Decision{Err: failed}, failed
	}
	return Decision{Allowed: mode == FailOpen, Err: failed}, nil
}
