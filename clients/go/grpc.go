package tollgate

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// DescribeCall maps a call to a gRPC server, by its context and its method such as /package.Service/Method, to
// descriptors; with none, the call is not limited.
type DescribeCall func(ctx context.Context, method string) []Descriptor

// UnaryServerInterceptor limits unary calls to a gRPC server. A denied one ends with RESOURCE_EXHAUSTED, a RetryInfo and
// the trailer retry-after; without a decision, with UNAVAILABLE, for a reason that is logged as by Middleware.
func UnaryServerInterceptor(client *Client, domain string, describe DescribeCall, options ...CallOption) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		headers, trailers, err := admit(ctx, client, domain, describe(ctx, info.FullMethod), options)
		// These fail only if the stream has ended.
		_ = grpc.SetHeader(ctx, headers)
		_ = grpc.SetTrailer(ctx, trailers)
		if err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
}

// StreamServerInterceptor limits streams of a gRPC server as UnaryServerInterceptor does calls, when they begin.
func StreamServerInterceptor(client *Client, domain string, describe DescribeCall, options ...CallOption) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		headers, trailers, err := admit(ctx, client, domain, describe(ctx, info.FullMethod), options)
		_ = stream.SetHeader(headers)
		stream.SetTrailer(trailers)
		if err != nil {
			return err
		}
		return handler(server, stream)
	}
}

// admit returns metadata for the response, and the status of a call that is not admitted.
func admit(ctx context.Context, client *Client, domain string, descriptors []Descriptor, options []CallOption) (headers, trailers metadata.MD, err error) {
	if len(descriptors) == 0 {
		return nil, nil, nil
	}
	decision, err := client.ShouldRateLimit(ctx, domain, descriptors, options...)
	headers = metadata.MD{}
	for _, header := range decision.Headers {
		headers.Append(strings.ToLower(header.Name), header.Value)
	}
	switch {
	case errors.Is(err, ErrRejected):
		return headers, nil, status.Error(codes.Internal, "the rate limit service rejects the request")
	case err != nil:
		warnings.noDecision(err)
		return headers, nil, status.Error(codes.Unavailable, "no decision of the rate limit service")
	case decision.Allowed:
		return headers, nil, nil
	}
	denied := status.New(codes.ResourceExhausted, "over the rate limit")
	if decision.RetryAfter > 0 {
		// It fails only for the code OK.
		denied, _ = denied.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(decision.RetryAfter)})
	}
	if seconds := decision.RetryAfterSeconds(); seconds != "" {
		trailers = metadata.Pairs("retry-after", seconds)
	}
	return headers, trailers, denied.Err()
}
