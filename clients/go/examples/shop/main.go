// Limits requests, and reserves the cost of work: shop TARGET. The example of docs/services.md.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	tollgate "tollgate.example/go/tollgate"
)

func buy(ctx context.Context, client *tollgate.Client, user string) (string, error) {
	decision, err := client.ShouldRateLimit(ctx, "shop", []tollgate.Descriptor{tollgate.Describe("user", user)})
	if err != nil {
		return "", err
	}
	if !decision.Allowed {
		return "denied", nil
	}
	return "allowed", nil
}

func summarize(ctx context.Context, client *tollgate.Client, tenant string, estimate uint32) (string, error) {
	hold, err := client.Reserve(ctx, "shop", []tollgate.Descriptor{tollgate.Describe("tenant", tenant)}, estimate)
	if err != nil {
		return "", err
	}
	defer hold.Close()
	if !hold.Allowed() {
		return "denied", nil
	}
	tokens := work()
	decision, err := hold.Commit(ctx, tokens)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d remaining", decision.Statuses[0].Remaining), nil
}

// work returns the cost of a call of a language model, here a constant.
func work() uint32 { return 300 }

func limited(client *tollgate.Client, application http.Handler) http.Handler {
	limit := tollgate.Middleware(client, "shop", func(r *http.Request) []tollgate.Descriptor {
		// A path may have any bytes, and the text of a descriptor is UTF-8.
		path := strings.ToValidUTF8(r.URL.Path, "\uFFFD")
		return []tollgate.Descriptor{tollgate.Describe("path", path)}
	})
	return limit(application)
}

func main() {
	client, err := tollgate.New(os.Args[1], tollgate.WithDefaults(tollgate.WithTimeout(10*time.Second)))
	check(err)
	defer client.Close()
	_ = limited(client, http.NotFoundHandler())
	ctx := context.Background()
	for range 3 {
		result, err := buy(ctx, client, "ann")
		check(err)
		fmt.Fprintln(os.Stderr, "result", result)
	}
	result, err := summarize(ctx, client, "a", 600)
	check(err)
	fmt.Fprintln(os.Stderr, "result", result)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
