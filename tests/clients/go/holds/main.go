// Reserves tokens, works, and commits the cost of the work: holds URL TENANT ESTIMATE COST...
//
// Each result is a line of standard error that begins with "result ". The example of docs/holds.md.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

var client = &http.Client{Timeout: time.Second}

// call posts a request to one of the paths of HoldService. It returns whether it was admitted.
func call(base, method string, hold map[string]any) (bool, error) {
	body, err := json.Marshal(hold)
	if err != nil {
		return false, err
	}
	response, err := client.Post(base+"/json/"+method, "application/json", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusTooManyRequests:
		return false, nil
	}
	why, _ := io.ReadAll(response.Body)
	return false, fmt.Errorf("%s: %s: %s", method, response.Status, why)
}

// withBudget runs work if the budget admits its estimate. It returns whether it did.
func withBudget(base, tenant string, estimate int, work func() (int, error)) (bool, error) {
	hold := map[string]any{
		"domain":      "llm",
		"descriptors": []any{map[string]any{"entries": []any{map[string]any{"key": "tenant", "value": tenant}}}},
		"id":          id(),
		"hits":        estimate,
	}
	admitted, err := call(base, "reserve", hold)
	if err != nil || !admitted {
		return admitted, err
	}
	tokens, err := work()
	if err != nil {
		delete(hold, "hits")
		_, cancelled := call(base, "cancel", hold)
		return true, errors.Join(err, cancelled)
	}
	hold["hits"] = tokens
	_, err = call(base, "commit", hold)
	return true, err
}

// id returns an ID that no other request has.
func id() string {
	return rand.Text()
}

func main() {
	base, tenant := os.Args[1], os.Args[2]
	estimate, _ := strconv.Atoi(os.Args[3])
	for _, cost := range os.Args[4:] {
		admitted, err := withBudget(base, tenant, estimate, func() (int, error) { return strconv.Atoi(cost) })
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "result failed")
		case admitted:
			fmt.Fprintln(os.Stderr, "result admitted")
		default:
			fmt.Fprintln(os.Stderr, "result denied")
		}
	}
}
