// Runs the cases of clients/conformance: reads calls as JSON lines from standard input, and writes what is seen.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	tollgate "tollgate.example/go/tollgate"
)

var errWork = errors.New("the work failed")

// call is a call of a case.
type call struct {
	Op          string        `json:"op"`
	Target      string        `json:"target"`
	CA          string        `json:"ca"`
	Domain      *string       `json:"domain"`
	Descriptors [][][2]string `json:"descriptors"`
	Hits        *uint32       `json:"hits"`
	TimeoutMs   *int          `json:"timeout_ms"`
	FailureMode string        `json:"failure_mode"`
	Shadow      *bool         `json:"shadow"`
	Count       int           `json:"count"`
	Concurrency int           `json:"concurrency"`
	Hold        string        `json:"hold"`
	ID          string        `json:"id"`
	TTLMs       int           `json:"ttl_ms"`
	Fails       bool          `json:"fails"`
	Integration string        `json:"integration"`
	Leases      bool          `json:"leases"`
	// Log is a file that gets a byte for each request of many that is admitted.
	Log string `json:"log"`
}

func (c call) domain() string {
	if c.Domain == nil {
		return "test"
	}
	return *c.Domain
}

func (c call) descriptors() []tollgate.Descriptor {
	descriptors := make([]tollgate.Descriptor, len(c.Descriptors))
	for index, entries := range c.Descriptors {
		for _, entry := range entries {
			descriptors[index] = descriptors[index].And(entry[0], entry[1])
		}
	}
	return descriptors
}

func (c call) ttl() time.Duration { return time.Duration(c.TTLMs) * time.Millisecond }

func (c call) options() []tollgate.CallOption {
	var options []tollgate.CallOption
	if c.TimeoutMs != nil {
		options = append(options, tollgate.WithTimeout(time.Duration(*c.TimeoutMs)*time.Millisecond))
	}
	modes := map[string]tollgate.FailureMode{
		"service": tollgate.FailService, "open": tollgate.FailOpen, "closed": tollgate.FailClosed,
	}
	if mode, isGiven := modes[c.FailureMode]; isGiven {
		options = append(options, tollgate.WithFailureMode(mode))
	}
	if c.Shadow != nil {
		options = append(options, tollgate.WithShadow(*c.Shadow))
	}
	if c.Hits != nil {
		options = append(options, tollgate.WithHits(*c.Hits))
	}
	if c.ID != "" {
		options = append(options, tollgate.WithID(c.ID))
	}
	if c.TTLMs != 0 {
		options = append(options, tollgate.WithTTL(c.ttl()))
	}
	return options
}

// program is the state between calls.
type program struct {
	client *tollgate.Client
	holds  map[string]*tollgate.Hold
	stops  []func()
	// admitted counts the requests of many that were admitted.
	admitted atomic.Int64
}

func main() {
	program := &program{holds: map[string]*tollgate.Hold{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var call call
		check(json.Unmarshal(lines.Bytes(), &call))
		seen, err := json.Marshal(program.run(call))
		check(err)
		fmt.Printf("%s\n", seen)
	}
	check(lines.Err())
}

func (p *program) run(c call) any {
	ctx := context.Background()
	switch c.Op {
	case "open":
		options := []tollgate.Option{tollgate.WithDefaults(c.options()...)}
		if c.Leases {
			options = append(options, tollgate.WithLeases())
		}
		if c.CA != "" {
			tls, err := credentials.NewClientTLSFromFile(c.CA, "")
			check(err)
			options = append(options, tollgate.WithTransportCredentials(tls))
		}
		client, err := tollgate.New(c.Target, options...)
		check(err)
		p.client = client
		p.admitted.Store(0)
	case "close":
		for _, stop := range p.stops {
			stop()
		}
		p.stops = nil
		check(p.client.Close())
	case "should_rate_limit":
		return seen(p.client.ShouldRateLimit(ctx, c.domain(), c.descriptors(), c.options()...))
	case "many":
		return map[string]any{"counts": p.many(c)}
	case "reserve":
		hits := uint32(0)
		if c.Hits != nil {
			hits = *c.Hits
		}
		hold, err := p.client.Reserve(ctx, c.domain(), c.descriptors(), hits, c.options()...)
		if err != nil {
			return raised(err)
		}
		p.holds[c.Hold] = hold
		return seen(hold.Decision, nil)
	case "commit":
		return seen(p.holds[c.Hold].Commit(ctx, *c.Hits))
	case "cancel":
		return seen(p.holds[c.Hold].Cancel(ctx))
	case "extend":
		return seen(p.holds[c.Hold].Extend(ctx, c.ttl()))
	case "leave":
		return raised(p.leave(c))
	case "in_memory":
		stats := p.client.LeaseStats()
		return map[string]any{"decided": stats.Decided, "lost": stats.Lost}
	case "admitted":
		return map[string]any{"hits": p.admitted.Load()}
	case "serve":
		address, stop := p.serve(c)
		p.stops = append(p.stops, stop)
		return map[string]any{"address": address}
	default:
		panic("unknown call " + c.Op)
	}
	return map[string]any{}
}

// leave ends the scope of a hold, of which the work may have failed.
func (p *program) leave(c call) error {
	hold := p.holds[c.Hold]
	delete(p.holds, c.Hold)
	defer hold.Close()
	if c.Fails {
		return errWork
	}
	return nil
}

func (p *program) many(c call) map[string]int {
	counts, lock := map[string]int{}, sync.Mutex{}
	var log *os.File
	if c.Log != "" {
		file, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		check(err)
		defer file.Close()
		log = file
	}
	calls := make(chan struct{}, c.Count)
	for range c.Count {
		calls <- struct{}{}
	}
	close(calls)
	var callers sync.WaitGroup
	for range c.Concurrency {
		callers.Go(func() {
			for range calls {
				decision, err := p.client.ShouldRateLimit(context.Background(), c.domain(), c.descriptors(), c.options()...)
				name := decision.Code.String()
				if err != nil {
					name = err.Error()
				} else if decision.Allowed {
					p.admitted.Add(1)
					if log != nil {
						_, err := log.WriteString(".")
						check(err)
					}
				}
				lock.Lock()
				counts[name]++
				lock.Unlock()
			}
		})
	}
	callers.Wait()
	return counts
}

func seen(decision tollgate.Decision, err error) any {
	if err != nil {
		return raised(err)
	}
	found := map[string]any{
		"allowed": decision.Allowed, "code": decision.Code.String(), "retry_after_ms": nil, "error": nil,
	}
	codes, limits, remaining := []string{}, []any{}, []uint32{}
	for _, status := range decision.Statuses {
		codes = append(codes, status.Code.String())
		remaining = append(remaining, status.Remaining)
		if status.HasLimit {
			limits = append(limits, status.Limit)
		} else {
			limits = append(limits, nil)
		}
	}
	found["codes"], found["limit"], found["remaining"] = codes, limits, remaining
	if decision.RetryAfter > 0 {
		found["retry_after_ms"] = decision.RetryAfter.Milliseconds()
	}
	headers := map[string]string{}
	for _, header := range decision.Headers {
		headers[strings.ToLower(header.Name)] = header.Value
	}
	found["headers"] = headers
	if decision.Err != nil {
		found["error"] = codeName(decision.Err)
	}
	return found
}

func raised(err error) any {
	switch {
	case err == nil:
		return map[string]any{}
	case errors.Is(err, tollgate.ErrRejected):
		return map[string]any{"raised": "rejected", "status": codeName(err)}
	case errors.Is(err, tollgate.ErrNoDecision):
		return map[string]any{"raised": "no_decision", "status": codeName(err)}
	case errors.Is(err, tollgate.ErrNoHits):
		return map[string]any{"raised": "invalid"}
	case errors.Is(err, errWork):
		return map[string]any{"raised": "work"}
	}
	panic(err)
}

// codeName returns the name of the code of an error, as in gRPC's specification.
func codeName(err error) string {
	names := map[codes.Code]string{
		codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
		codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS", codes.Unavailable: "UNAVAILABLE",
		codes.Internal: "INTERNAL",
	}
	if name, isKnown := names[status.Code(err)]; isKnown {
		return name
	}
	return status.Code(err).String()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
