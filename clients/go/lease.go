package tollgate

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"tollgate.example/go/tollgate/tollgatev1"
)

const (
	// hotRequests is the number of requests in a window from which a key is worth a block.
	hotRequests = 8
	// firstWindow is the window of demand until the first block, which has the TTL of the lease.
	firstWindow = 500 * time.Millisecond
	// maxBlocks bounds the blocks of a key: mostly one that is used, and the next.
	maxBlocks = 4
	// maxLeased is the number of descriptors of a request that may be decided in memory.
	maxLeased = 8
)

// LeaseStats are counts since the client was created.
type LeaseStats struct {
	// Decided is the number of requests that were admitted in memory.
	Decided uint64
	// Lent is the number of hits in blocks.
	Lent uint64
	// Lost is the number of exchanges without an answer. What they may have lent or returned counts until it expires.
	Lost uint64
}

// instant is a time since the start of the process, by two clocks. The monotonic one does not advance while the machine is
// suspended; the time of day may be set.
type instant struct {
	monotonic, ofDay time.Duration
}

var processStart = time.Now()

func currentInstant() instant {
	now := time.Now()
	return instant{now.Sub(processStart), time.Duration(now.UnixNano())}
}

// block is a number of hits that were charged before they were lent. Its key's mutex guards it.
type block struct {
	loan *tollgatev1.Loan
	// sent is the instant before the request for it was sent, from which its hits are usable.
	sent   instant
	usable time.Duration
	left   uint32
	closed bool
}

// hasEnded reports whether its hits may no longer be admitted, by either of the clocks.
func (b *block) hasEnded(now instant) bool {
	ofDay := now.ofDay - b.sent.ofDay
	return b.closed || now.monotonic-b.sent.monotonic >= b.usable || ofDay >= b.usable || ofDay < 0
}

// isRunningOut reports whether it is time for the next block: at most a quarter is left of its hits or of its time.
func (b *block) isRunningOut(now instant) bool {
	return b.left <= b.loan.Hits/4 || now.monotonic-b.sent.monotonic >= b.usable/4*3
}

// close returns its unused hits to the service with the next exchange.
func (b *block) close() *tollgatev1.LeaseReturn {
	b.closed = true
	return &tollgatev1.LeaseReturn{Receipt: b.loan.Receipt, Unused: b.left, Used: b.loan.Hits - b.left}
}

// demand counts the requests of a key in a window, and in the one before it.
type demand struct {
	since                  time.Duration
	requests, lastRequests uint32
	hits, lastHits         uint64
}

func (d *demand) count(hits uint32, window, now time.Duration) {
	if passed := now - d.since; passed >= window {
		d.lastRequests, d.lastHits = 0, 0
		if passed < 2*window {
			d.lastRequests, d.lastHits = d.requests, d.hits
		}
		d.since, d.requests, d.hits = now, 0, 0
	}
	d.requests++
	d.hits += uint64(hits)
}

// leasedKey is a descriptor of a domain: the demand for it, and its blocks.
type leasedKey struct {
	domain     string
	descriptor *common.RateLimitDescriptor

	mutex      sync.Mutex
	demand     demand
	window     time.Duration
	blocks     []*block
	generation uint64
	// isAsking is set from the decision to want a block until the answer.
	isAsking bool
	// notBefore is the instant before which no block is wanted.
	notBefore time.Duration
	// isForgotten is set when the key is no longer in the table.
	isForgotten bool
}

// take takes hits from a block. It returns nil if none has so many, and whether to want the next block.
func (k *leasedKey) take(hits uint32, now instant) (taken *block, status Status, wants bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.demand.count(hits, k.window, now.monotonic)
	isEnough := false
	inHand := uint64(0)
	for _, block := range k.blocks {
		if block.hasEnded(now) {
			continue
		}
		if taken == nil && block.left >= hits {
			block.left -= hits
			taken = block
		}
		inHand += uint64(block.left)
		isEnough = isEnough || !block.isRunningOut(now)
	}
	if !isEnough && k.isWorthABlock(now.monotonic) {
		k.isAsking = true
		wants = true
	}
	if taken != nil {
		status = k.status(inHand, now)
	}
	return taken, status, wants
}

// isWorthABlock reports whether to want a block, if those in hand are not enough.
func (k *leasedKey) isWorthABlock(now time.Duration) bool {
	isHot := max(k.demand.requests, k.demand.lastRequests) >= hotRequests
	return isHot && len(k.blocks) < maxBlocks && !k.isAsking && !k.isForgotten && now >= k.notBefore
}

// status describes the counter: as it was when the last block was lent, and the hits in hand.
func (k *leasedKey) status(inHand uint64, now instant) Status {
	last := k.blocks[len(k.blocks)-1]
	counter := last.loan.Counter
	remaining := min(counter.GetRemaining()+inHand, 1<<32-1)
	reset := counter.GetResetAfter().AsDuration() - (now.monotonic - last.sent.monotonic)
	return Status{Code: OK, HasLimit: true, Limit: counter.GetLimit(), Remaining: uint32(remaining), ResetAfter: max(0, reset)}
}

// putBack undoes take. Hits of a block that is closed by then are lost.
func (k *leasedKey) putBack(taken *block, hits uint32) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if !taken.closed {
		taken.left += hits
	}
}

// leases decides requests from blocks of hits.
type leases struct {
	exchanger *exchanger
	decided   atomic.Uint64

	mutex sync.RWMutex
	keys  map[string]*leasedKey
	swept time.Duration
}

const (
	// maxKeys bounds the table: requests of other keys go to the service.
	maxKeys = 1 << 13
	// maxKeyBytes bounds a key of the table, of which each entry counts as entryBytes more than its text.
	maxKeyBytes = 1 << 10
	entryBytes  = 32
)

// decide returns the decision of a request if all of its descriptors have enough hits in hand: then it is admitted.
func (l *leases) decide(domain string, descriptors []Descriptor, hits uint32) (Decision, bool) {
	if hits == 0 || len(descriptors) == 0 || len(descriptors) > maxLeased {
		return Decision{}, false
	}
	for _, descriptor := range descriptors {
		if !isLeasable(domain, descriptor) {
			return Decision{}, false
		}
	}
	now := currentInstant()
	var keys [maxLeased]*leasedKey
	var blocks [maxLeased]*block
	statuses := make([]Status, len(descriptors))
	isAdmitted := true
	for index, descriptor := range descriptors {
		key := l.key(domain, descriptor, now.monotonic)
		if key == nil || contains(keys[:index], key) {
			isAdmitted = false
			break
		}
		taken, status, wants := key.take(hits, now)
		if wants {
			l.exchanger.want(key)
		}
		keys[index], blocks[index], statuses[index] = key, taken, status
		// The demand of the others is counted too.
		isAdmitted = isAdmitted && taken != nil
	}
	if isAdmitted {
		l.decided.Add(1)
		return Decision{Allowed: true, Code: OK, Statuses: statuses}, true
	}
	for index, taken := range blocks {
		if taken != nil {
			keys[index].putBack(taken, hits)
		}
	}
	return Decision{}, false
}

// isLeasable reports whether an exchange may have the descriptor. The service refuses a whole exchange for one that
// operates on a hold, and the table has a bound in bytes.
func isLeasable(domain string, descriptor Descriptor) bool {
	count := len(descriptor.entries)
	size := len(domain) + count*entryBytes
	for _, entry := range descriptor.entries {
		size += len(entry.Key) + len(entry.Value)
	}
	if size > maxKeyBytes {
		return false
	}
	if count == 0 {
		return true
	}
	switch descriptor.entries[count-1].Key {
	case "tollgate.reserve", "tollgate.commit", "tollgate.settle":
		return false
	}
	return true
}

func contains(keys []*leasedKey, key *leasedKey) bool {
	for _, found := range keys {
		if found == key {
			return true
		}
	}
	return false
}

// key returns the key of a descriptor, or nil if the table is full.
func (l *leases) key(domain string, descriptor Descriptor, now time.Duration) *leasedKey {
	var buffer [256]byte
	name := appendText(buffer[:0], domain)
	for _, entry := range descriptor.entries {
		name = appendText(appendText(name, entry.Key), entry.Value)
	}
	l.mutex.RLock()
	found := l.keys[string(name)]
	l.mutex.RUnlock()
	if found != nil {
		return found
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if found := l.keys[string(name)]; found != nil {
		return found
	}
	if len(l.keys) >= maxKeys && !l.sweep(now) {
		return nil
	}
	// The text of the caller may be a part of a larger one, such as of a URL.
	own := &common.RateLimitDescriptor{}
	for _, entry := range descriptor.entries {
		own.Entries = append(own.Entries, &common.RateLimitDescriptor_Entry{
			Key: strings.Clone(entry.Key), Value: strings.Clone(entry.Value),
		})
	}
	added := &leasedKey{domain: strings.Clone(domain), descriptor: own, window: firstWindow}
	added.demand.since = now
	l.keys[string(name)] = added
	return added
}

// sweep forgets keys that are idle, at most once a second. It reports whether there is room.
func (l *leases) sweep(now time.Duration) bool {
	if now-l.swept < time.Second {
		return false
	}
	l.swept = now
	for name, key := range l.keys {
		key.mutex.Lock()
		if !key.isAsking && len(key.blocks) == 0 && now-key.demand.since >= 2*key.window {
			key.isForgotten = true
			delete(l.keys, name)
		}
		key.mutex.Unlock()
	}
	return len(l.keys) < maxKeys
}

// appendText appends a text with its length, so that no two lists of texts have the same encoding.
func appendText(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}
