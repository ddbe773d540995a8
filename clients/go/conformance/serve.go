package main

import (
	"context"
	"io"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	tollgate "tollgate.example/go/tollgate"
)

// serve starts a server that an integration limits by the user. It returns its address, and how to stop it.
func (p *program) serve(c call) (string, func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := listener.Addr().String()
	if c.Integration == "grpc" {
		server := grpc.NewServer(
			grpc.UnaryInterceptor(tollgate.UnaryServerInterceptor(p.client, "test", byMetadata, c.options()...)),
		)
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		go server.Serve(listener)
		return address, server.Stop
	}
	application := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "application") })
	limited := tollgate.Middleware(p.client, "test", byHeader, c.options()...)(application)
	server := &http.Server{Handler: limited}
	go server.Serve(listener)
	return address, func() { server.Close() }
}

func byHeader(r *http.Request) []tollgate.Descriptor {
	return byUser(r.Header.Values("x-user"))
}

func byMetadata(ctx context.Context, _ string) []tollgate.Descriptor {
	return byUser(metadata.ValueFromIncomingContext(ctx, "x-user"))
}

func byUser(users []string) []tollgate.Descriptor {
	var descriptors []tollgate.Descriptor
	for _, user := range users {
		descriptors = append(descriptors, tollgate.Describe("user", user))
	}
	return descriptors
}
