// Package tollgate is a client of the rate limit service Tollgate: decisions, holds, and middleware for gRPC and HTTP
// servers.
package tollgate

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// DefaultTimeout bounds a call without WithTimeout; an earlier deadline of its context applies.
const DefaultTimeout = 250 * time.Millisecond

const (
	shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	holdService     = "/tollgate.v1.HoldService/"
)

// ShouldRateLimit is not retried, since a call that was lost may have been charged. The calls of HoldService have an ID,
// and a repeated one is not charged again. Retries stop while more than a third of the attempts fail: in an outage,
// they would multiply the load.
const serviceConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"methodConfig": [{
		"name": [{"service": "tollgate.v1.HoldService"}],
		"retryPolicy": {
			"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}],
	"retryThrottling": {"maxTokens": 100, "tokenRatio": 0.5}
}`

// Client is a connection to all replicas behind a name. Create one and share it: it is safe for concurrent use.
type Client struct {
	connection *grpc.ClientConn
	defaults   callOptions
	// leases is nil without WithLeases.
	leases *leases
}

// New creates a client, which connects at its first call.
//
// The target is a name of gRPC, such as dns:///tollgate.example:8081. Calls go to its addresses in turn.
func New(target string, options ...Option) (*Client, error) {
	settings := settings{
		credentials: insecure.NewCredentials(),
		defaults:    callOptions{timeout: DefaultTimeout, hits: 1},
	}
	for _, option := range options {
		option(&settings)
	}
	// The defaults of gRPC wait up to two minutes before they connect again, and never notice a peer that falls silent.
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(settings.credentials),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
	}, settings.dial...)
	connection, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, err
	}
	client := &Client{connection: connection, defaults: settings.defaults}
	if settings.leases {
		client.leases = &leases{exchanger: newExchanger(connection), keys: map[string]*leasedKey{}}
	}
	return client, nil
}

// Close returns the hits that are lent to the client, and closes the connections.
func (c *Client) Close() error {
	if c.leases != nil {
		c.leases.exchanger.close()
	}
	return c.connection.Close()
}

// LeaseStats returns the counts of WithLeases.
func (c *Client) LeaseStats() LeaseStats {
	if c.leases == nil {
		return LeaseStats{}
	}
	exchanger := c.leases.exchanger
	return LeaseStats{c.leases.decided.Load(), exchanger.lent.Load(), exchanger.lost.Load()}
}

// ShouldRateLimit returns the decision for a request. The error matches ErrNoDecision, unless the failure mode decides,
// or ErrRejected; it is that of the context if the caller cancelled it.
func (c *Client) ShouldRateLimit(ctx context.Context, domain string, descriptors []Descriptor, options ...CallOption) (Decision, error) {
	settings := c.defaults.with(options)
	if err := checkText(domain, descriptors, ""); err != nil {
		return fromError(ctx, err, settings.mode, settings.shadow)
	}
	if c.leases != nil {
		if decision, isDecided := c.leases.decide(domain, descriptors, settings.hits); isDecided {
			return decision, nil
		}
	}
	request := &rls.RateLimitRequest{Domain: domain, Descriptors: messages(descriptors), HitsAddend: settings.hits}
	if settings.hits == 0 {
		// The protocol reads 0 as 1, except at a descriptor.
		for _, descriptor := range request.Descriptors {
			descriptor.HitsAddend = wrapperspb.UInt64(0)
		}
	}
	return c.call(ctx, shouldRateLimit, request, settings)
}

// checkText returns an error with INVALID_ARGUMENT for text that is not UTF-8. Such a message is never sent: gRPC fails
// with INTERNAL, which is no decision, and FailOpen would admit every request with such a value.
func checkText(domain string, descriptors []Descriptor, id string) error {
	if !utf8.ValidString(domain) || !utf8.ValidString(id) {
		return status.Errorf(codes.InvalidArgument, "domain and ID must be UTF-8, found %.64q and %.64q", domain, id)
	}
	for index, descriptor := range descriptors {
		for _, entry := range descriptor.entries {
			if !utf8.ValidString(entry.Key) || !utf8.ValidString(entry.Value) {
				return status.Errorf(codes.InvalidArgument, "keys and values must be UTF-8, found %.64q with %.64q in descriptor %d",
					entry.Key, entry.Value, index)
			}
		}
	}
	return nil
}

func (c *Client) call(ctx context.Context, method string, request proto.Message, settings callOptions) (Decision, error) {
	bounded, cancel := context.WithTimeout(ctx, settings.timeout)
	defer cancel()
	// Proxies are answered otherwise: they show the lowest number that remains, and a missing wait as zero.
	bounded = metadata.AppendToOutgoingContext(bounded, "x-tollgate-caller", "service")
	response := new(rls.RateLimitResponse)
	if err := c.connection.Invoke(bounded, method, request, response); err != nil {
		return fromError(ctx, err, settings.mode, settings.shadow)
	}
	return fromResponse(ctx, response, settings.mode, settings.shadow)
}

// Descriptor has the entries of a descriptor, in the order in which the policy nests its rules. Keys and values must be
// UTF-8: calls with others return ErrRejected. strings.ToValidUTF8 makes text of a value that a client chooses.
type Descriptor struct {
	entries []*common.RateLimitDescriptor_Entry
}

// Describe returns a descriptor of one entry.
func Describe(key, value string) Descriptor {
	return Descriptor{}.And(key, value)
}

// And returns a descriptor with one more entry.
func (d Descriptor) And(key, value string) Descriptor {
	entries := make([]*common.RateLimitDescriptor_Entry, 0, len(d.entries)+1)
	entries = append(entries, d.entries...)
	return Descriptor{append(entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})}
}

func messages(descriptors []Descriptor) []*common.RateLimitDescriptor {
	messages := make([]*common.RateLimitDescriptor, len(descriptors))
	for index, descriptor := range descriptors {
		messages[index] = &common.RateLimitDescriptor{Entries: descriptor.entries}
	}
	return messages
}

type settings struct {
	credentials credentials.TransportCredentials
	dial        []grpc.DialOption
	defaults    callOptions
	leases      bool
}

// Option is an option of a client.
type Option func(*settings)

// WithTransportCredentials sets TLS; the default is plaintext.
func WithTransportCredentials(credentials credentials.TransportCredentials) Option {
	return func(s *settings) { s.credentials = credentials }
}

// WithDialOptions adds options of grpc-go, such as interceptors.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}

// WithLeases makes ShouldRateLimit admit requests in memory, from blocks of hits that the service has charged before it
// lent them. They are borrowed in the background for descriptors with at least 8 requests in the TTL of a lease, if their
// rule has a lease with the holder client. All other requests, and all denials, are decided by the service.
//
// A decision in memory has no Headers. Hits that are lent when a process is killed count until they expire.
func WithLeases() Option {
	return func(s *settings) { s.leases = true }
}

// WithDefaults sets options of calls that do not set them.
func WithDefaults(options ...CallOption) Option {
	return func(s *settings) { s.defaults = s.defaults.with(options) }
}

type callOptions struct {
	timeout time.Duration
	mode    FailureMode
	shadow  bool
	hits    uint32
	id      string
	ttl     time.Duration
}

func (o callOptions) with(options []CallOption) callOptions {
	for _, option := range options {
		option(&o)
	}
	return o
}

// CallOption is an option of a call.
type CallOption func(*callOptions)

// WithTimeout bounds the time of a call.
func WithTimeout(timeout time.Duration) CallOption {
	return func(o *callOptions) { o.timeout = timeout }
}

// WithFailureMode sets the result of a call without a decision.
func WithFailureMode(mode FailureMode) CallOption {
	return func(o *callOptions) { o.mode = mode }
}

// WithShadow allows every request: it is counted and decided, and Decision.Code has the answer.
func WithShadow(shadow bool) CallOption {
	return func(o *callOptions) { o.shadow = shadow }
}

// WithHits sets the number of hits that ShouldRateLimit takes; the default is 1. With 0, it peeks without taking any.
func WithHits(hits uint32) CallOption {
	return func(o *callOptions) { o.hits = hits }
}

// WithID sets the ID of a hold, which must be unique for the piece of work. It is generated by default. After a reserve
// without a decision, use a new ID: the hold is cancelled in the background, or by Close, and so is one with the same ID.
func WithID(id string) CallOption {
	return func(o *callOptions) { o.id = id }
}

// WithTTL sets the time after which a hold expires; the default is that of the rule.
func WithTTL(ttl time.Duration) CallOption {
	return func(o *callOptions) { o.ttl = ttl }
}

// ErrNoHits is the error of a reserve of 0 hits.
var ErrNoHits = errors.New("tollgate: a reserve has at least 1 hit, found 0")
