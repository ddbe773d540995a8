package tollgate

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"tollgate.example/go/tollgate/tollgatev1"
)

var start = instant{time.Hour, 1000 * time.Hour}

// after returns an instant at which both clocks have advanced.
func after(passed time.Duration) instant {
	return instant{start.monotonic + passed, start.ofDay + passed}
}

func lent(hits uint32, usable time.Duration) *tollgatev1.LeaseAnswer {
	counter := &tollgatev1.CounterReport{Limit: 100, Remaining: 50, ResetAfter: durationpb.New(time.Minute)}
	loan := &tollgatev1.Loan{Hits: hits, UsableFor: durationpb.New(usable), Receipt: []byte{1}, Counter: counter}
	return &tollgatev1.LeaseAnswer{Generation: 1, Answer: &tollgatev1.LeaseAnswer_Loan{Loan: loan}}
}

func leased(answer *tollgatev1.LeaseAnswer) *leasedKey {
	key := &leasedKey{window: firstWindow, descriptor: messages([]Descriptor{Describe("user", "ann")})[0]}
	key.demand.since = start.monotonic
	key.answered(answer, start)
	return key
}

func TestABlockAdmitsItsHitsUntilItsEnd(t *testing.T) {
	key := leased(lent(10, time.Second))
	taken, status, _ := key.take(4, after(time.Millisecond))
	if taken == nil || status.Remaining != 56 || status.Limit != 100 {
		t.Errorf("%+v, %+v", taken, status)
	}
	if taken, _, _ := key.take(7, after(time.Millisecond)); taken != nil {
		t.Error("7 of 6 hits are taken")
	}
	if taken, _, _ := key.take(1, after(time.Second-1)); taken == nil {
		t.Error("a block has not ended, and no hits are taken")
	}
	if taken, _, _ := key.take(1, after(time.Second)); taken != nil {
		t.Error("a hit is taken from a block that has ended")
	}
}

func TestABlockEndsWithTheTimeOfDayAfterASuspension(t *testing.T) {
	key := leased(lent(10, time.Second))
	if !key.blocks[0].hasEnded(instant{start.monotonic, start.ofDay + time.Second}) {
		t.Error("a block outlives a suspension")
	}
	if !key.blocks[0].hasEnded(instant{start.monotonic, start.ofDay - time.Millisecond}) {
		t.Error("a block outlives a clock that was set back")
	}
}

func TestHitsThatArePutBackAreReturnedUnlessTheBlockIsClosed(t *testing.T) {
	key := leased(lent(10, time.Second))
	first, _, _ := key.take(3, start)
	second, _, _ := key.take(2, start)
	key.putBack(first, 3)
	back := first.close()
	key.putBack(second, 2)
	if back.Unused != 8 || back.Used != 2 || first.left != 8 {
		t.Errorf("%+v, %d left", back, first.left)
	}
}

func TestAnotherGenerationEndsTheBlocksBeforeIt(t *testing.T) {
	key := leased(lent(10, time.Second))
	changed := lent(5, time.Second)
	changed.Generation = 2
	key.answered(changed, start)
	if taken, _, _ := key.take(6, start); taken != nil {
		t.Error("hits of the limit before the change are taken")
	}
	if taken, _, _ := key.take(5, start); taken == nil {
		t.Error("hits of the changed limit are not taken")
	}
}

func TestABlockIsWantedOnceWhenAKeyIsHot(t *testing.T) {
	key := leased(nil)
	key.notBefore = 0
	wanted := 0
	for range 3 * hotRequests {
		if _, _, wants := key.take(1, after(time.Millisecond)); wants {
			wanted++
		}
	}
	if wanted != 1 || key.demand.requests != 3*hotRequests {
		t.Errorf("wanted %d times after %d requests", wanted, key.demand.requests)
	}
	if hits := key.wanted().Hits; hits != 3*hotRequests {
		t.Errorf("wanted %d hits", hits)
	}
}

func TestADenialAndALeaseThatIsMissingAreNotAskedForAgainAtOnce(t *testing.T) {
	denial := &tollgatev1.Denial{ValidFor: durationpb.New(800 * time.Millisecond)}
	for answer, wait := range map[*tollgatev1.LeaseAnswer]time.Duration{
		nil: firstWindow,
		{Answer: &tollgatev1.LeaseAnswer_Denial{Denial: denial}}:                              800 * time.Millisecond,
		{Answer: &tollgatev1.LeaseAnswer_NotLeasable{NotLeasable: &tollgatev1.NotLeasable{}}}: notLeasableFor,
	} {
		key := leased(answer)
		for at, expected := range map[time.Duration]bool{wait - time.Millisecond: false, wait: true} {
			key.demand = demand{since: after(at).monotonic, requests: hotRequests}
			if _, _, wants := key.take(1, after(at)); wants != expected {
				t.Errorf("%v after %v: %v", answer, at, wants)
			}
		}
	}
}

func TestNamesOfKeysAreInjective(t *testing.T) {
	table := leases{keys: map[string]*leasedKey{}}
	one := table.key("a", Describe("bc", "d"), start.monotonic)
	for _, other := range []*leasedKey{
		table.key("ab", Describe("c", "d"), start.monotonic),
		table.key("a", Describe("b", "cd"), start.monotonic),
		table.key("a", Describe("bc", "d").And("", ""), start.monotonic),
	} {
		if one == other {
			t.Errorf("%v is %v", one, other)
		}
	}
	if one != table.key("a", Describe("bc", "d"), start.monotonic) {
		t.Error("a key is not found")
	}
}

func TestDescriptorsThatAnExchangeMayNotHaveAreNotInTheTable(t *testing.T) {
	table := leases{keys: map[string]*leasedKey{}}
	many := Descriptor{}
	for range 64 {
		many = many.And("", "")
	}
	for _, refused := range []Descriptor{
		Describe("user", "ann").And("tollgate.reserve", "id"),
		Describe("user", "ann").And("tollgate.commit", "id"),
		Describe("tollgate.settle", "id"),
		Describe("path", strings.Repeat("x", maxKeyBytes)),
		many,
	} {
		table.decide("shop", []Descriptor{Describe("user", "ann"), refused}, 1)
	}
	if len(table.keys) != 0 {
		t.Errorf("%d keys", len(table.keys))
	}
	table.decide("shop", []Descriptor{Describe("tollgate.settle", "").And("path", strings.Repeat("x", 900))}, 1)
	if len(table.keys) != 1 {
		t.Errorf("%d keys", len(table.keys))
	}
}

func TestATableThatIsFullForgetsIdleKeys(t *testing.T) {
	table := leases{keys: map[string]*leasedKey{}}
	held := table.key("shop", Describe("user", "held"), start.monotonic)
	held.answered(lent(10, time.Minute), start)
	for number := range maxKeys {
		if key := table.key("shop", Describe("user", string(rune('a'+number))), start.monotonic); (key == nil) != (number == maxKeys-1) {
			t.Fatalf("key %d: %v", number, key)
		}
	}
	if key := table.key("shop", Describe("user", "next"), after(2*time.Second).monotonic); key == nil {
		t.Error("idle keys are not forgotten")
	}
	if table.key("shop", Describe("user", "held"), start.monotonic) != held {
		t.Error("a key with a block is forgotten")
	}
}

// BenchmarkDecisionInMemory measures a decision with one descriptor and a block in hand.
func BenchmarkDecisionInMemory(b *testing.B) {
	table := leases{keys: map[string]*leasedKey{}}
	descriptors := []Descriptor{Describe("user", "ann")}
	table.key("shop", descriptors[0], 0).answered(lent(1<<32-1, time.Hour), currentInstant())
	b.ReportAllocs()
	for b.Loop() {
		if _, isDecided := table.decide("shop", descriptors, 1); !isDecided {
			b.Fatal("not decided in memory")
		}
	}
}

// exchanges answers calls of LeaseService with blocks of 10 hits, and fails the first.
type exchanges struct {
	requests chan *tollgatev1.ExchangeRequest
	failed   atomic.Bool
}

func (e *exchanges) handle(_ any, stream grpc.ServerStream) error {
	request := new(tollgatev1.ExchangeRequest)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	e.requests <- request
	if !e.failed.Swap(true) {
		return status.Error(codes.Unavailable, "lost")
	}
	response := &tollgatev1.ExchangeResponse{}
	for range request.Wants {
		response.Answers = append(response.Answers, lent(10, time.Minute))
	}
	for range request.Returns {
		response.Results = append(response.Results, tollgatev1.LeaseResult_ACCEPTED)
	}
	return stream.SendMsg(response)
}

func TestALostExchangeIsCountedAndNotRepeatedAtOnce(t *testing.T) {
	service := &exchanges{requests: make(chan *tollgatev1.ExchangeRequest, 8)}
	client := connect(t, service.handle, WithLeases())
	descriptors := []Descriptor{Describe("user", "ann")}
	for range hotRequests {
		client.leases.decide("shop", descriptors, 1)
	}
	lost := <-service.requests
	if len(lost.Wants) != 1 || lost.Wants[0].Hits != hotRequests {
		t.Errorf("%v", lost)
	}
	// The key is still hot, and is requested again when a window has passed.
	var again *tollgatev1.ExchangeRequest
	for again == nil {
		client.leases.decide("shop", descriptors, 1)
		select {
		case again = <-service.requests:
		default:
			runtime.Gosched()
		}
	}
	if stats := client.LeaseStats(); stats.Lost != 1 || len(again.Wants) != 1 || len(again.Returns) != 0 {
		t.Errorf("%+v, %v", stats, again)
	}
}

func TestAClosedClientReturnsEachBlockOnce(t *testing.T) {
	service := &exchanges{requests: make(chan *tollgatev1.ExchangeRequest, 8)}
	service.failed.Store(true)
	client := connect(t, service.handle, WithLeases())
	descriptors := []Descriptor{Describe("user", "ann")}
	for isDecided := false; !isDecided; {
		_, isDecided = client.leases.decide("shop", descriptors, 3)
		runtime.Gosched()
	}
	client.Close()
	client.Close()
	close(service.requests)
	var returns []*tollgatev1.LeaseReturn
	for request := range service.requests {
		returns = append(returns, request.Returns...)
	}
	if len(returns) != 1 || returns[0].Unused != 7 || returns[0].Used != 3 {
		t.Errorf("%v", returns)
	}
}
