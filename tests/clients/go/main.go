// A client by grpc-go, for tests/clients: `client TARGET SCENARIO [ARGUMENT...]`.
//
// Each result is a line of standard error that begins with "result ".
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Concurrent calls of a scenario that makes many.
const concurrency = 8

// Calls that are cancelled as soon as they are begun.
const races = 100

type client struct {
	connection *grpc.ClientConn
	service    rls.RateLimitServiceClient
}

func main() {
	target, scenario, arguments := os.Args[1], os.Args[2], os.Args[3:]
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	client := client{connection, rls.NewRateLimitServiceClient(connection)}
	number := func(index int) int {
		number, err := strconv.Atoi(arguments[index])
		check(err)
		return number
	}
	switch scenario {
	case "hit":
		client.hit(arguments[0], number(1))
	case "gzip":
		client.hit(arguments[0], number(1), grpc.UseCompressor("gzip"))
	case "deadline":
		client.deadline()
	case "cancel":
		client.cancel()
	case "check":
		client.check()
	case "watch":
		client.watch()
	case "services":
		client.services()
	case "sized":
		client.sized(number(0))
	case "gzip-sized":
		client.sized(number(0), grpc.UseCompressor("gzip"))
	case "many":
		left := make(chan struct{}, number(0))
		for range number(0) {
			left <- struct{}{}
		}
		close(left)
		client.tally(func() bool { _, isLeft := <-left; return isLeft })
	case "load":
		end := time.Now().Add(time.Duration(number(0)) * time.Millisecond)
		client.tally(func() bool { return time.Now().Before(end) })
	}
}

func request(key, value string) *rls.RateLimitRequest {
	entry := &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	descriptor := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}}
	return &rls.RateLimitRequest{Domain: "test", Descriptors: []*common.RateLimitDescriptor{descriptor}}
}

// decide returns the decision, or the status of a call that failed.
func (c client) decide(ctx context.Context, request *rls.RateLimitRequest, options ...grpc.CallOption) string {
	response, err := c.service.ShouldRateLimit(ctx, request, options...)
	if err != nil {
		return name(err)
	}
	return response.OverallCode.String()
}

func (c client) hit(value string, count int, options ...grpc.CallOption) {
	for range count {
		result(c.decide(context.Background(), request("user", value), options...))
	}
}

// free returns a request that no limit applies to, so that no store is needed.
func (c client) free() {
	result(c.decide(context.Background(), request("free", "x")))
}

// deadline begins a call without its message, which cannot be answered in time.
func (c client) deadline() {
	c.free()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	stream := c.begin(ctx)
	result(name(stream.RecvMsg(new(rls.RateLimitResponse))))
	c.free()
}

// begin begins a call without its message.
func (c client) begin(ctx context.Context) grpc.ClientStream {
	stream, err := c.connection.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, rls.RateLimitService_ShouldRateLimit_FullMethodName)
	check(err)
	return stream
}

// cancel cancels a call that waits for its message, and calls wherever they are by then.
func (c client) cancel() {
	c.free()
	ctx, cancel := context.WithCancel(context.Background())
	stream := c.begin(ctx)
	c.free()
	cancel()
	result(name(stream.RecvMsg(new(rls.RateLimitResponse))))
	for range races {
		ctx, cancel := context.WithCancel(context.Background())
		answer := make(chan string)
		go func() { answer <- c.decide(ctx, request("user", "ann")) }()
		cancel()
		if answer := <-answer; !slices.Contains([]string{"OK", "OVER_LIMIT", "CANCELLED"}, answer) {
			result(answer)
		}
	}
	c.free()
}

func (c client) check() {
	response, err := grpc_health_v1.NewHealthClient(c.connection).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	check(err)
	result(response.Status.String())
}

func (c client) watch() {
	stream, err := grpc_health_v1.NewHealthClient(c.connection).Watch(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	check(err)
	for {
		response, err := stream.Recv()
		if err != nil {
			result("end")
			return
		}
		result(response.Status.String())
	}
}

func (c client) services() {
	stream, err := reflection.NewServerReflectionClient(c.connection).ServerReflectionInfo(context.Background())
	check(err)
	list := &reflection.ServerReflectionRequest_ListServices{}
	check(stream.Send(&reflection.ServerReflectionRequest{MessageRequest: list}))
	response, err := stream.Recv()
	check(err)
	var names []string
	for _, service := range response.GetListServicesResponse().Service {
		names = append(names, service.Name)
	}
	slices.Sort(names)
	result(strings.Join(names, " "))
}

// sized sends a message of exactly so many bytes, before it is compressed.
func (c client) sized(bytes int, options ...grpc.CallOption) {
	length := 0
	for proto.Size(request("user", strings.Repeat("v", length))) < bytes {
		length += max(1, bytes-proto.Size(request("user", strings.Repeat("v", length)))-12)
	}
	sized := request("user", strings.Repeat("v", length))
	if proto.Size(sized) != bytes {
		panic("there is no message of this size")
	}
	result(c.decide(context.Background(), sized, options...))
}

// tally calls while there is more to do, and prints how often each result came.
func (c client) tally(more func() bool) {
	var (
		counts  = map[string]int{}
		lock    sync.Mutex
		callers sync.WaitGroup
	)
	for range concurrency {
		callers.Go(func() {
			for more() {
				answer := c.decide(context.Background(), request("free", "x"))
				lock.Lock()
				counts[answer]++
				lock.Unlock()
			}
		})
	}
	callers.Wait()
	for answer, count := range counts {
		result(fmt.Sprint(answer, " ", count))
	}
}

// name returns a status as the protocol spells it.
func name(err error) string {
	names := map[codes.Code]string{
		codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.OutOfRange: "OUT_OF_RANGE",
		codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
		codes.Unimplemented: "UNIMPLEMENTED", codes.Unavailable: "UNAVAILABLE", codes.Internal: "INTERNAL",
	}
	if name, isKnown := names[status.Code(err)]; isKnown {
		return name
	}
	return status.Code(err).String()
}

func result(line string) { fmt.Fprintln(os.Stderr, "result", line) }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
