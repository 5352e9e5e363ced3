// Command load puts load on one system and prints one JSON line of what it saw.
//
//	load send -system remoting -at 127.0.0.1:9876 -topic T -senders 64 -conns 64 -size 1024 -pids "101 102 103"
//	load tail -system nats -at 127.0.0.1:14221,127.0.0.1:14222 -topic T -groups 10 -rate 1000
//	load read -system remoting -at 127.0.0.1:9876 -topic T
//	load idle -pids "101 102 103"
//
// And of RocketMQ's protocol alone (kinds.go, pops.go):
//
//	load send -transactions -at 127.0.0.1:9876 -topic T
//	load fill -at 127.0.0.1:9876 -topic T -count 100000 -every 10
//	load read -at 127.0.0.1:9876 -topic T -expression "price > 100" -expression-type SQL92
//	load timers -at 127.0.0.1:9876 -topic T -count 50000
//	load recovery -at 127.0.0.1:9876 -topic T -due Due
//	load pop -at 127.0.0.1:9876 -topic T -count 100000 -batch 32
//
// And of a gRPC proxy alone (grpc.go):
//
//	load receive -system grpc -at 127.0.0.1:9876,127.0.0.1:8081 -topic T -count 10000 -batch 32 -acks 32
//	load idle -system grpc -at 127.0.0.1:9876,127.0.0.1:8081 -proxy-pids 104 -clients 1000
//
// send: each sender waits for its own answer before it sends again. With -lone the first sender pauses between its
// sends, and its times are printed by themselves. tail: the senders keep to -rate together, and each group follows the
// topic; the times are from just before a send until a group has the message. read: a topic is read from its beginning
// to its present end. idle: nothing is sent.
//
// With -transactions a send is a half message and the request that commits it. fill: so many messages are sent.
// timers: they are sent before, and all are due in one second; the times are how late a group has each. recovery: tries
// until a send is acknowledged and until the due topic has a message. pop: so many messages, which the topic holds, are
// popped and acknowledged. receive: so many are sent, and then received and acknowledged.
//
// Every system is driven by the same loops, so that its client is all that differs.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// system is what is measured, by its own protocol.
type system interface {
	// open makes the topic where it is missing.
	open(topic string, queues int) error
	// sender returns what sends one body over connection `conn` and waits until it is acknowledged.
	sender(topic string, index, conn int) (func(body []byte) error, error)
	// follow calls got for each message that comes after now, until the program ends. It returns once it follows.
	follow(topic, group string, got func(body []byte)) error
	// read calls got for each message that the topic holds.
	read(topic string, got func(body []byte)) error
}

var (
	kind    = flag.String("system", "remoting", "remoting (RocketMQ's protocol), grpc (its proxy's) or nats (JetStream)")
	at      = flag.String("at", "127.0.0.1:9876", "NameServer; of grpc NameServer,PROXY; or the servers of NATS with commas")
	topic   = flag.String("topic", "Load", "topic or stream")
	senders = flag.Int("senders", 64, "senders, each with one message on its way; pop, receive: consumers")
	conns   = flag.Int("conns", 1, "connections that the senders share")
	size    = flag.Int("size", 1024, "bytes of a body")
	queues  = flag.Int("queues", 8, "queues of a topic that is made")
	groups  = flag.Int("groups", 1, "tail: groups that follow the topic")
	rate    = flag.Float64("rate", 200, "tail: messages per second of all senders together")
	lone    = flag.Bool("lone", false, "send: the first sender pauses 5 ms between its sends")
	secs    = flag.Float64("seconds", 4, "measured part")
	warmup  = flag.Float64("warmup", 1, "seconds before it")
	pids    = flag.String("pids", "", "processes of the system")
	proxies = flag.String("proxy-pids", "", "processes of the proxy, which are told by themselves")
	beside  = flag.String("beside", "", "processes that are part of the measurement and not of the system")
	count   = flag.Int("count", 0, "fill, timers, pop, receive: messages")
	batch   = flag.Int("batch", 32, "pop, receive: messages of one pop, at most")
	acks    = flag.Int("acks", 1, "receive: messages of one acknowledgement, at most")
	clients = flag.Int("clients", 0, "idle: clients of the proxy that are connected")
	every   = flag.Int("every", 1, "fill: every so many-th message has tag A and a price above 100")
	after   = flag.Float64("deliver-after", 0, "fill: seconds until the first one is due; 0: no timers")
	within  = flag.Float64("deliver-within", 1, "fill: their times are drawn from so many seconds from there")
	due     = flag.String("due", "", "recovery: topic that gets a message in time")
	settled = flag.Bool("settled", false, "idle: first wait until the servers have dealt with what was sent")
	procs   = flag.Int("procs", 0, "GOMAXPROCS (default: what its client is fastest with on two cores, one for remoting, two for nats)")

	transactions   = flag.Bool("transactions", false, "send, tail: each send is a half message and its commit")
	expression     = flag.String("expression", "*", "read: what is subscribed to")
	expressionType = flag.String("expression-type", "TAG", "read: TAG or SQL92")
)

const commandNames = "send, tail, read, idle, fill, timers, recovery, pop or receive"

// scanned counts the messages between which a filter chose.
var scanned atomic.Int64

const lonePause = 5 * time.Millisecond

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		fail(fmt.Errorf("say %s first; load send -h lists the options", commandNames))
	}
	_ = flag.CommandLine.Parse(os.Args[2:])
	if *procs == 0 {
		*procs = map[string]int{"nats": 2}[*kind]
	}
	runtime.GOMAXPROCS(max(*procs, 1))
	for _, address := range strings.Split(*at, ",") {
		if !strings.HasPrefix(address, "127.") && !strings.HasPrefix(address, "localhost:") {
			fail(fmt.Errorf("-at %s: only addresses of this machine are put under load", address))
		}
	}
	commands := map[string]func(system) (map[string]any, error){
		"send": send, "tail": tail, "read": read, "idle": idle, "fill": fill, "timers": timers, "recovery": recovery,
		"pop": pops, "receive": receives,
	}
	run, known := commands[os.Args[1]]
	if !known || flag.NArg() > 0 {
		fail(fmt.Errorf("%s: say %s, then options", strings.Join(os.Args[1:], " "), commandNames))
	}
	var s system
	switch *kind {
	case "remoting":
		s = newRemoting(strings.Split(*at, ","))
	case "grpc":
		s = newGrpc(strings.Split(*at, ","))
	case "nats":
		s = newNats(strings.Split(*at, ","))
	default:
		fail(fmt.Errorf("-system %s: remoting, grpc or nats", *kind))
	}
	// No request has a time limit of its own: the clock of each would cost as much as the rest.
	limit := time.Duration((*warmup + *secs + 120 + float64(*count)/2000) * float64(time.Second))
	time.AfterFunc(limit, func() {
		fail(fmt.Errorf("no end after %v: an answer is missing, or the servers do not come to rest", limit))
	})
	figures, err := run(s)
	if err != nil {
		fail(err)
	}
	line, _ := json.Marshal(figures)
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

const (
	warmingUp = iota
	measuring
	stopping
)

// senderResult is what one sender saw while it was measured.
type senderResult struct {
	times  []int64 // ns
	failed int
	err    error
}

// runSenders lets all senders go, and measures after the warm-up. `pause` says how long a sender waits before its
// next send.
func runSenders(s system, pause func(index int, began time.Time) time.Duration) (from, to usage, results []senderResult, err error) {
	if err = s.open(*topic, *queues); err != nil {
		return
	}
	sends := make([]func([]byte) error, *senders)
	for i := range sends {
		if sends[i], err = s.sender(*topic, i, i%*conns); err != nil {
			return
		}
	}
	var phase atomic.Int32
	var group sync.WaitGroup
	results = make([]senderResult, *senders)
	for i := range sends {
		group.Add(1)
		go func() {
			defer group.Done()
			body := slices.Repeat([]byte{'x'}, max(*size, 8))
			for {
				began := time.Now()
				before := phase.Load()
				if before == stopping {
					return
				}
				binary.BigEndian.PutUint64(body, uint64(began.UnixNano()))
				failure := sends[i](body)
				took := time.Since(began).Nanoseconds()
				if before == measuring && phase.Load() == measuring {
					if failure == nil {
						results[i].times = append(results[i].times, took)
					} else {
						results[i].failed++
					}
				}
				wait := pause(i, began)
				if failure != nil {
					results[i].err = failure
					wait = max(wait, 10*time.Millisecond)
				}
				if wait > 0 {
					time.Sleep(wait)
				}
			}
		}()
	}
	time.Sleep(time.Duration(*warmup * float64(time.Second)))
	from = measure()
	phase.Store(measuring)
	time.Sleep(time.Duration(*secs * float64(time.Second)))
	phase.Store(stopping)
	to = measure()
	group.Wait()
	return
}

func send(s system) (map[string]any, error) {
	from, to, results, err := runSenders(s, func(index int, _ time.Time) time.Duration {
		if *lone && index == 0 {
			return lonePause
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	var all []int64
	failed := 0
	var last error
	for i, result := range results {
		if !*lone || i > 0 {
			all = append(all, result.times...)
		}
		failed += result.failed
		if result.err != nil {
			last = result.err
		}
	}
	count := len(all)
	figures := map[string]any{"failed": failed}
	if *lone {
		count += len(results[0].times)
		addTimes(figures, "lone_", results[0].times)
	}
	addTimes(figures, "", all)
	addUsage(figures, from, to, count)
	if last != nil {
		figures["last_error"] = last.Error()
	}
	if count == 0 {
		return nil, fmt.Errorf("nothing was acknowledged; the last error: %v", last)
	}
	return figures, nil
}

func tail(s system) (map[string]any, error) {
	if err := s.open(*topic, *queues); err != nil {
		return nil, err
	}
	// A message counts where it was sent in the measured part: its time is in its body.
	var mu sync.Mutex
	var times, sentAt []int64
	for i := range *groups {
		err := s.follow(*topic, fmt.Sprintf("load_tail_%d_%d", os.Getpid(), i), func(body []byte) {
			now, sent := time.Now().UnixNano(), int64(binary.BigEndian.Uint64(body))
			mu.Lock()
			times, sentAt = append(times, now-sent), append(sentAt, sent)
			mu.Unlock()
		})
		if err != nil {
			return nil, err
		}
	}
	interval := time.Duration(float64(*senders) / *rate * float64(time.Second))
	from, to, results, err := runSenders(s, func(_ int, began time.Time) time.Duration {
		return time.Until(began.Add(interval))
	})
	if err != nil {
		return nil, err
	}
	sent, failed := 0, 0
	for _, result := range results {
		sent += len(result.times)
		failed += result.failed
	}
	var measured []int64
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		measured = measured[:0]
		mu.Lock()
		for i, began := range sentAt {
			if began >= from.at.UnixNano() && began < to.at.UnixNano() {
				measured = append(measured, times[i])
			}
		}
		mu.Unlock()
		if len(measured) >= sent**groups {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d groups got %d of %d messages", *groups, len(measured), sent**groups)
		}
	}
	figures := map[string]any{"failed": failed}
	addTimes(figures, "", measured)
	addUsage(figures, from, to, sent)
	return figures, nil
}

func read(s system) (map[string]any, error) {
	if err := s.open(*topic, 0); err != nil {
		return nil, err
	}
	var brought, bytes atomic.Int64
	from := measure()
	if err := s.read(*topic, func(body []byte) {
		brought.Add(1)
		bytes.Add(int64(len(body)))
	}); err != nil {
		return nil, err
	}
	to := measure()
	figures := map[string]any{"mib_per_s": math.Round(float64(bytes.Load()) / to.at.Sub(from.at).Seconds() / (1 << 20))}
	addUsage(figures, from, to, int(brought.Load()))
	if passed := float64(scanned.Load()); passed > 0 {
		figures["scanned_per_s"] = math.Round(passed / to.at.Sub(from.at).Seconds())
		figures["scanned_us"] = math.Round((to.servers-from.servers)*1e7/passed) / 10
	}
	return figures, nil
}

// idle tells of the proxy, if there is one, and else of the servers.
func idle(s system) (map[string]any, error) {
	if *clients > 0 {
		if err := connectIdle(s, *clients); err != nil {
			return nil, err
		}
	}
	if *settled {
		settle()
	}
	told := *pids
	if *proxies != "" {
		told = *proxies
	}
	from, spent, wakeUps := measure(), secondsOf(told), wakeUpsOf(told)
	time.Sleep(time.Duration(*secs * float64(time.Second)))
	to := measure()
	spent = secondsOf(told) - spent
	took := to.at.Sub(from.at).Seconds()
	each := float64(wakeUpsOf(told)-wakeUps) / took / float64(len(strings.Fields(told)))
	figures := map[string]any{
		"cpu_pct":        math.Round(1000*spent/took) / 10,
		"wake_ups_per_s": math.Round(each), "memory_mib": math.Round(float64(memoryKiB(told, "Pss:")) / 1024),
		"anonymous_mib": math.Round(float64(memoryKiB(told, "Pss_Anon:")) / 1024),
	}
	if *proxies != "" {
		figures["brokers_cpu_pct"] = math.Round(1000*(to.servers-from.servers)/took) / 10
	}
	addUsage(figures, from, to, 0)
	return figures, nil
}

func addTimes(figures map[string]any, prefix string, times []int64) {
	slices.Sort(times)
	for name, share := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99} {
		if len(times) > 0 {
			at := int(math.Ceil(share*float64(len(times)))) - 1
			figures[prefix+name] = math.Round(float64(times[at])/1e3) / 1e3
		}
	}
}
