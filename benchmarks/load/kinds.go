package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	preparedFlag = 4
	commitFlag   = "8"
)

// valueOf finds the string behind a key of the header; no value of ours contains these keys.
func valueOf(header []byte, key string) []byte {
	_, rest, _ := bytes.Cut(header, []byte(`"`+key+`":`))
	value, _, _ := bytes.Cut(bytes.TrimLeft(rest, ` "`), []byte(`"`))
	return value
}

func halfProperties(out []byte) []byte {
	return append(plainProperties(out), `\u0002TRAN_MSG\u0001true\u0002PGROUP\u0001load`...)
}

// transaction returns what sends one body as a half message, commits it, and waits until that is acknowledged.
func (r *remoting) transaction(topic string, index, conn int) (func([]byte) error, error) {
	send, w, err := r.sends(topic, index, conn, preparedFlag, halfProperties)
	if err != nil {
		return nil, err
	}
	// All queues of the topic are at one broker, which has the half message too.
	c, err := r.connection(r.queues[topic][0].address, conn)
	if err != nil {
		return nil, err
	}
	var fields []byte
	return func(body []byte) error {
		if err := send(body); err != nil {
			return err
		}
		// The offset message id is address, port, and the position in the log, in hexadecimal digits.
		id := valueOf(w.header, "msgId")
		if len(id) != 32 {
			return fmt.Errorf("a half message has the id %q", id)
		}
		position, err := strconv.ParseUint(string(id[16:]), 16, 64)
		if err != nil {
			return err
		}
		fields = append(fields[:0], `{"producerGroup":"load","commitOrRollback":"`+commitFlag+`","fromTransactionCheck":"false","topic":"`...)
		fields = append(fields, topic...)
		fields = append(fields, `","transactionId":"`...)
		fields = append(fields, valueOf(w.header, "transactionId")...)
		fields = append(fields, `","msgId":"`...)
		fields = append(fields, valueOf(w.header, "transactionId")...)
		fields = append(fields, `","tranStateTableOffset":"`...)
		fields = append(fields, valueOf(w.header, "queueOffset")...)
		fields = append(fields, `","commitLogOffset":"`...)
		fields = strconv.AppendUint(fields, position, 10)
		fields = append(fields, `"}`...)
		if err := c.ask(w, endTransaction, fields, nil); err != nil {
			return err
		}
		if number(w.header, codeKey) != success {
			return fmt.Errorf("answer to the commit %s", w.header)
		}
		return nil
	}, nil
}

// sendAll sends -count messages, each once; one that is refused is sent again. The first 8 bytes of a body are the
// time (ns) at which it is due, or now.
func (r *remoting) sendAll(dueMs func() int64) (failed int64, err error) {
	var next, refused atomic.Int64
	failures := make(chan error, *senders)
	for i := range *senders {
		var properties []byte
		send, _, err := r.sends(*topic, i, i%*conns, 0, func(out []byte) []byte { return append(out, properties...) })
		if err != nil {
			return 0, err
		}
		go func() {
			body := slices.Repeat([]byte{'x'}, max(*size, 8))
			for {
				n := int(next.Add(1))
				if n > *count {
					failures <- nil
					return
				}
				tag, price := "A", 250
				if n%*every != 0 {
					tag, price = "B", 20
				}
				properties = fmt.Appendf(properties[:0], `\u0002TAGS\u0001%s\u0002price\u0001%d\u0002color\u0001red`, tag, price)
				at := time.Now().UnixNano()
				if dueMs != nil {
					ms := dueMs()
					at = ms * 1e6
					properties = fmt.Appendf(properties, `\u0002TIMER_DELIVER_MS\u0001%d`, ms)
				}
				binary.BigEndian.PutUint64(body, uint64(at))
				for err := send(body); err != nil; err = send(body) {
					if refused.Add(1) > int64(*count) {
						failures <- err
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	for range *senders {
		err = errors.Join(err, <-failures)
	}
	return refused.Load(), err
}

func asRemoting(s system) (*remoting, error) {
	r, is := s.(*remoting)
	if !is {
		return nil, fmt.Errorf("only -system remoting has transactions, timers and filters")
	}
	return r, r.open(*topic, *queues)
}

func fill(s system) (map[string]any, error) {
	r, err := asRemoting(s)
	if err != nil {
		return nil, err
	}
	var dueMs func() int64
	if *after > 0 {
		first := time.Now().UnixMilli() + int64(*after*1000)
		dueMs = func() int64 { return first + rand.Int64N(int64(*within*1000)) }
	}
	from := measure()
	failed, err := r.sendAll(dueMs)
	if err != nil {
		return nil, err
	}
	figures := map[string]any{"failed": failed}
	addUsage(figures, from, measure(), *count)
	return figures, nil
}

func timers(s system) (map[string]any, error) {
	r, err := asRemoting(s)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var late []int64
	all := make(chan struct{})
	if err := r.follow(*topic, "load_timers", func(body []byte) {
		now := time.Now().UnixNano()
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, now-int64(binary.BigEndian.Uint64(body))); len(late) == *count {
			close(all)
		}
	}); err != nil {
		return nil, err
	}
	// Late enough that a system on a busy machine has stored all before.
	second := time.Now().Truncate(time.Second).Add(time.Duration(5+*count/1250) * time.Second)
	failed, err := r.sendAll(func() int64 { return second.UnixMilli() + rand.Int64N(1000) })
	if err != nil {
		return nil, err
	}
	wait := time.Until(second)
	if wait < time.Second {
		return nil, fmt.Errorf("%d timers took so long to send that they are due already", *count)
	}
	time.Sleep(wait)
	from := measure()
	<-all
	to := measure()
	mu.Lock()
	defer mu.Unlock()
	if first := slices.Min(late); first < 0 {
		return nil, fmt.Errorf("a timer came %v early", time.Duration(-first))
	}
	figures := map[string]any{"failed": failed}
	addTimes(figures, "", late)
	addUsage(figures, from, to, *count)
	return figures, nil
}

// recovery says when a send was acknowledged, and when the due topic had a message, in seconds since 1970. Each try has
// connections of its own.
func recovery(system) (map[string]any, error) {
	until := func(try func(r *remoting) error) <-chan time.Time {
		found := make(chan time.Time)
		go func() {
			for {
				r := newRemoting(strings.Split(*at, ",")).(*remoting)
				err, now := try(r), time.Now()
				r.close()
				if err == nil {
					found <- now
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		return found
	}
	served := until(func(r *remoting) error {
		if err := r.open(*topic, 0); err != nil {
			return err
		}
		send, err := r.sender(*topic, 0, 0)
		if err != nil {
			return err
		}
		return send(make([]byte, *size))
	})
	fired := until(func(r *remoting) error {
		if err := r.open(*due, 0); err != nil {
			return err
		}
		count := 0
		err := r.read(*due, func([]byte) { count++ })
		if err == nil && count == 0 {
			err = errors.New("nothing yet")
		}
		return err
	})
	seconds := func(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
	return map[string]any{"served_at": seconds(<-served), "fired_at": seconds(<-fired)}, nil
}
