package tollgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"tollgate.example/go/tollgate/tollgatev1"
)

const (
	exchangeMethod = "/tollgate.v1.LeaseService/Exchange"
	// exchangeInterval is the least time between two rounds of exchanges.
	exchangeInterval = 50 * time.Millisecond
	// exchangeTimeout bounds an exchange. A block that comes late is usable for less time.
	exchangeTimeout = time.Second
	// notLeasableFor is the time for which a descriptor that is never lent is not requested: the policies may change.
	notLeasableFor = 10 * time.Second
	// maxItems and maxBytes bound an exchange; the service's bounds are 256 and 64 KiB.
	maxItems = 256
	maxBytes = 48 << 10
)

// exchanger borrows and returns blocks in the background, with one exchange at a time.
type exchanger struct {
	connection *grpc.ClientConn
	lent, lost atomic.Uint64

	mutex sync.Mutex
	wants []*leasedKey

	// held has the keys with blocks. Only the goroutine of run uses it.
	held map[*leasedKey]struct{}

	wake    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}
}

// item is a want of a key, or a return of its block.
type item struct {
	key  *leasedKey
	back *tollgatev1.LeaseReturn
}

func newExchanger(connection *grpc.ClientConn) *exchanger {
	ctx, stop := context.WithCancel(context.Background())
	e := &exchanger{
		connection: connection, held: map[*leasedKey]struct{}{},
		wake: make(chan struct{}, 1), stop: stop, stopped: make(chan struct{}),
	}
	go e.run(ctx)
	return e
}

// want requests a block with the next exchange.
func (e *exchanger) want(key *leasedKey) {
	e.mutex.Lock()
	e.wants = append(e.wants, key)
	e.mutex.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// close returns all blocks.
func (e *exchanger) close() {
	e.stop()
	<-e.stopped
}

func (e *exchanger) run(ctx context.Context) {
	defer close(e.stopped)
	// While blocks are held, it returns those that have ended.
	ticker := time.NewTicker(exchangeInterval)
	defer ticker.Stop()
	for {
		if len(e.held) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-e.wake:
			}
		}
		select {
		case <-ctx.Done():
			e.exchange(e.returns(currentInstant(), true))
			return
		case <-ticker.C:
		}
		e.exchange(append(e.takeWants(), e.returns(currentInstant(), false)...))
	}
}

func (e *exchanger) takeWants() []item {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	items := make([]item, len(e.wants))
	for index, key := range e.wants {
		items[index].key = key
	}
	e.wants = nil
	return items
}

// returns closes the blocks that have ended or are empty, or all of them.
func (e *exchanger) returns(now instant, all bool) []item {
	var items []item
	for key := range e.held {
		key.mutex.Lock()
		var kept []*block
		for _, block := range key.blocks {
			if all || block.left == 0 || block.hasEnded(now) {
				items = append(items, item{key, block.close()})
			} else {
				kept = append(kept, block)
			}
		}
		key.blocks = kept
		key.mutex.Unlock()
		if len(kept) == 0 {
			delete(e.held, key)
		}
	}
	return items
}

// exchange sends wants and returns, in as many calls as domains and bounds need.
func (e *exchanger) exchange(items []item) {
	byDomain := map[string][]item{}
	for _, item := range items {
		byDomain[item.key.domain] = append(byDomain[item.key.domain], item)
	}
	for domain, items := range byDomain {
		for len(items) > 0 {
			count, bytes := 0, 0
			for count < min(len(items), maxItems) {
				bytes += proto.Size(items[count].key.descriptor) + proto.Size(items[count].back) + 32
				if count > 0 && bytes > maxBytes {
					break
				}
				count++
			}
			e.call(domain, items[:count])
			items = items[count:]
		}
	}
}

// call makes one exchange, which is never repeated: what a lost one may have lent counts until it expires.
func (e *exchanger) call(domain string, items []item) {
	request := &tollgatev1.ExchangeRequest{Domain: domain}
	var wanting []*leasedKey
	for _, item := range items {
		if item.back != nil {
			item.back.Descriptor_ = item.key.descriptor
			request.Returns = append(request.Returns, item.back)
			continue
		}
		request.Wants = append(request.Wants, item.key.wanted())
		wanting = append(wanting, item.key)
	}
	ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
	defer cancel()
	response := new(tollgatev1.ExchangeResponse)
	sent := currentInstant()
	err := e.connection.Invoke(ctx, exchangeMethod, request, response)
	if err != nil {
		e.lost.Add(1)
	}
	for index, key := range wanting {
		var answer *tollgatev1.LeaseAnswer
		if err == nil && index < len(response.Answers) {
			answer = response.Answers[index]
		}
		e.lent.Add(uint64(answer.GetLoan().GetHits()))
		if key.answered(answer, sent) {
			e.held[key] = struct{}{}
		}
	}
}

// wanted returns the want of a key: the hits of its demand.
func (k *leasedKey) wanted() *tollgatev1.LeaseWant {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	hits := max(k.demand.hits, k.demand.lastHits)
	return &tollgatev1.LeaseWant{Descriptor_: k.descriptor, Hits: uint32(min(hits, 1<<32-1))}
}

// answered records the answer to a want, or nil if there is none. It reports whether the key has blocks.
func (k *leasedKey) answered(answer *tollgatev1.LeaseAnswer, sent instant) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.isAsking = false
	if answer != nil && answer.Generation != k.generation {
		// The limit has changed. The exchanger returns the blocks that have ended.
		for _, block := range k.blocks {
			block.closed = true
		}
		k.generation = answer.Generation
	}
	switch found := answer.GetAnswer().(type) {
	case *tollgatev1.LeaseAnswer_Loan:
		usable := found.Loan.UsableFor.AsDuration()
		k.window = max(usable, exchangeInterval)
		k.blocks = append(k.blocks, &block{loan: found.Loan, sent: sent, usable: usable, left: found.Loan.Hits})
	case *tollgatev1.LeaseAnswer_Denial:
		// The service denies, with the time to wait.
		k.notBefore = sent.monotonic + max(found.Denial.ValidFor.AsDuration(), exchangeInterval)
	case *tollgatev1.LeaseAnswer_NotLeasable:
		k.notBefore = sent.monotonic + notLeasableFor
	default:
		k.notBefore = sent.monotonic + k.window
	}
	return len(k.blocks) > 0
}
