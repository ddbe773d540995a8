package tollgate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"tollgate.example/go/tollgate/tollgatev1"
)

// unansweredReserves answers Cancel, and leaves Reserve unanswered.
type unansweredReserves struct{ reserved, cancelled chan string }

func (s *unansweredReserves) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if method == holdService+"Reserve" {
		request := new(tollgatev1.ReserveRequest)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		s.reserved <- request.Id
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	request := new(tollgatev1.CancelRequest)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	s.cancelled <- request.Id
	return stream.SendMsg(&rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK})
}

// connect returns a client of a server that handles all methods.
func connect(t *testing.T, handle grpc.StreamHandler, options ...Option) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(handle))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	client, err := New(listener.Addr().String(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestAReserveOfACallerThatIsGoneBeforeItIsSentCancelsNothing(t *testing.T) {
	service := &unansweredReserves{make(chan string, 1), make(chan string, 1)}
	client := connect(t, service.handle, WithDefaults(WithTimeout(time.Minute)))
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	descriptors := []Descriptor{Describe("tenant", "a")}
	if _, err := client.Reserve(gone, "llm", descriptors, 1, WithID("one")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	// A cancel in the background would arrive before, or at the same time.
	ctx, end := context.WithCancel(context.Background())
	go client.Reserve(ctx, "llm", descriptors, 1, WithID("two"))
	<-service.reserved
	end()
	if cancelled := <-service.cancelled; cancelled != "two" {
		t.Errorf("cancelled %q, which was not reserved", cancelled)
	}
}

func TestAReserveWhoseCallerIsGoneIsGivenBack(t *testing.T) {
	service := &unansweredReserves{make(chan string, 1), make(chan string, 1)}
	client := connect(t, service.handle, WithDefaults(WithTimeout(time.Minute)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := client.Reserve(ctx, "llm", []Descriptor{Describe("tenant", "a")}, 1, WithFailureMode(FailOpen))
		ended <- err
	}()
	reserved := <-service.reserved
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if cancelled := <-service.cancelled; cancelled != reserved {
		t.Errorf("cancelled %q, reserved %q", cancelled, reserved)
	}
}

func TestTextThatIsNotUTF8IsRejectedInEveryFailureMode(t *testing.T) {
	unreachable := func(any, grpc.ServerStream) error { t.Error("a call is sent"); return nil }
	client := connect(t, unreachable, WithLeases(), WithDefaults(WithTimeout(time.Minute), WithFailureMode(FailOpen)))
	ctx := context.Background()
	user := []Descriptor{Describe("user", "ann")}
	check := func(decision Decision, err error) {
		t.Helper()
		if !errors.Is(err, ErrRejected) || status.Code(err) != codes.InvalidArgument || decision.Allowed {
			t.Errorf("%+v, %v", decision, err)
		}
	}
	check(client.ShouldRateLimit(ctx, "sh\xff", user))
	check(client.ShouldRateLimit(ctx, "shop", []Descriptor{Describe("user", "ann\xff")}))
	check(client.ShouldRateLimit(ctx, "shop", append(user, Describe("plan", "free").And("\xff", ""))))
	_, err := client.Reserve(ctx, "shop", user, 1, WithID("\xff"))
	check(Decision{}, err)
	_, err = client.Reserve(ctx, "shop", []Descriptor{Describe("user", "\xff")}, 1)
	check(Decision{}, err)
	if decision, err := client.ShouldRateLimit(ctx, "sh\xff", user, WithShadow(true)); err != nil || !decision.Allowed {
		t.Errorf("in shadow mode: %+v, %v", decision, err)
	}
}

func TestRetryAfterIsTheLongestWaitOfThoseThatDeny(t *testing.T) {
	response := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OVER_LIMIT,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{
			{Code: rls.RateLimitResponse_OK, DurationUntilReset: durationpb.New(time.Minute)},
			{Code: rls.RateLimitResponse_OVER_LIMIT, DurationUntilReset: durationpb.New(3500 * time.Millisecond)},
			{Code: rls.RateLimitResponse_OVER_LIMIT, DurationUntilReset: durationpb.New(2 * time.Second)},
		},
	}
	decision, err := fromResponse(context.Background(), response, FailService, false)
	if err != nil || decision.Allowed || decision.RetryAfter != 3500*time.Millisecond || decision.RetryAfterSeconds() != "4" {
		t.Errorf("%+v, Retry-After: %s", decision, decision.RetryAfterSeconds())
	}
	if seconds := (Decision{Code: Undecided}).RetryAfterSeconds(); seconds != "1" {
		t.Errorf("without a time, Retry-After: %s", seconds)
	}
}

func TestEachCodeIsARejectionOrNoDecision(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failed := status.Error(code, "why")
		_, err := fromError(context.Background(), failed, FailService, false)
		if errors.Is(err, ErrRejected) == errors.Is(err, ErrNoDecision) || status.Code(err) != code {
			t.Errorf("%v: %v", code, err)
		}
		decision, open := fromError(context.Background(), failed, FailOpen, false)
		if errors.Is(err, ErrNoDecision) && (open != nil || !decision.Allowed || status.Code(decision.Err) != code) {
			t.Errorf("%v, open: %+v, %v", code, decision, open)
		}
		if errors.Is(err, ErrRejected) && !errors.Is(open, ErrRejected) {
			t.Errorf("%v, open: %v", code, open)
		}
	}
}

func TestAndLeavesTheDescriptorItExtends(t *testing.T) {
	plan := Describe("plan", "free")
	ann, bob := plan.And("user", "ann"), plan.And("user", "bob")
	found := messages([]Descriptor{plan, ann, bob})
	if len(found[0].Entries) != 1 || found[1].Entries[1].Value != "ann" || found[2].Entries[1].Value != "bob" {
		t.Errorf("%v", found)
	}
}

func TestAStreamIsDeniedAsACallIs(t *testing.T) {
	denies := func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(rls.RateLimitRequest)); err != nil {
			return err
		}
		return stream.SendMsg(&rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OVER_LIMIT})
	}
	client := connect(t, denies, WithDefaults(WithTimeout(time.Minute)))
	describe := func(context.Context, string) []Descriptor { return []Descriptor{Describe("user", "ann")} }
	intercept := StreamServerInterceptor(client, "shop", describe)
	stream := &recordedStream{}
	handler := func(any, grpc.ServerStream) error { t.Error("the handler is called"); return nil }
	err := intercept(nil, stream, &grpc.StreamServerInfo{FullMethod: "/a.B/C"}, handler)
	if status.Code(err) != codes.ResourceExhausted || len(stream.trailer.Get("retry-after")) != 0 {
		t.Errorf("%v, %v", err, stream.trailer)
	}
}

func TestARequestThatIsRejectedIsAnErrorOfTheServer(t *testing.T) {
	rejects := func(any, grpc.ServerStream) error { return status.Error(codes.PermissionDenied, "no") }
	client := connect(t, rejects, WithDefaults(WithTimeout(time.Minute), WithFailureMode(FailOpen)))
	describe := func(*http.Request) []Descriptor { return []Descriptor{Describe("user", "ann")} }
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler is called") })
	answer := httptest.NewRecorder()
	Middleware(client, "shop", describe)(next).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != http.StatusInternalServerError {
		t.Errorf("status %d", answer.Code)
	}
}

func TestTheReasonOfAMissingDecisionIsLoggedOnceASecond(t *testing.T) {
	fails := func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, "the store is down") }
	client := connect(t, fails, WithDefaults(WithTimeout(time.Minute)))
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	warnings.next.Store(0)
	describe := func(*http.Request) []Descriptor { return []Descriptor{Describe("user", "ann")} }
	answer := httptest.NewRecorder()
	Middleware(client, "shop", describe)(nil).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(logged.String(), "the store is down") {
		t.Errorf("status %d, logged %q", answer.Code, &logged)
	}
	logged.Reset()
	warnings.next.Store(math.MaxInt64)
	warnings.noDecision(ErrNoDecision)
	if logged.Len() != 0 {
		t.Errorf("logged %q", &logged)
	}
}

// recordedStream records the trailer of a stream.
type recordedStream struct {
	grpc.ServerStream
	trailer metadata.MD
}

func (s *recordedStream) Context() context.Context       { return context.Background() }
func (s *recordedStream) SetHeader(metadata.MD) error    { return nil }
func (s *recordedStream) SetTrailer(trailer metadata.MD) { s.trailer = trailer }

// The Python package has the messages as the service serves them, which another test compares.
func TestTheMessagesAreThoseOfTheService(t *testing.T) {
	packed, err := os.ReadFile("../python/src/tollgate/protocol.binpb")
	if err != nil {
		t.Skip("not in the repository: ", err)
	}
	files := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(packed, files); err != nil {
		t.Fatal(err)
	}
	for _, file := range []protoreflect.FileDescriptor{tollgatev1.File_tollgate_v1_hold_proto, tollgatev1.File_tollgate_v1_lease_proto} {
		own := protodesc.ToFileDescriptorProto(file)
		isSame := func(file *descriptorpb.FileDescriptorProto) bool { return proto.Equal(file, own) }
		if !slices.ContainsFunc(files.File, isSame) {
			t.Errorf("%s differs: run clients/go/generate", file.Path())
		}
	}
}
