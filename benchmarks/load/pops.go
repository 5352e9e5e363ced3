package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	popMessage = 200050
	ackMessage = 200051

	pollingFull    = 209
	pollingTimeout = 210
)

// pops has -senders consumers of one group pop -batch messages at a time. Each message is acknowledged by itself, as
// RocketMQ's clients do it, all of a pop at once. It ends when -count have their acknowledgement.
func pops(s system) (map[string]any, error) {
	r, err := asRemoting(s)
	if err != nil {
		return nil, err
	}
	var acked atomic.Int64
	failures := make(chan error, *senders)
	from := measure()
	for i := range *senders {
		go func() { failures <- r.popAll(i%*conns, &acked) }()
	}
	for range *senders {
		err = errors.Join(err, <-failures)
	}
	to := measure()
	if err != nil {
		return nil, err
	}
	figures := map[string]any{"failed": 0}
	addUsage(figures, from, to, int(acked.Load()))
	return figures, nil
}

func (r *remoting) popAll(conn int, acked *atomic.Int64) error {
	q := r.queues[*topic][0] // all queues of the topic are at one broker
	c, err := r.connection(q.address, conn)
	if err != nil {
		return err
	}
	group := fmt.Sprintf("load_pop_%d", os.Getpid())
	w := newWaiter()
	failures := make(chan error, *batch)
	for acked.Load() < int64(*count) {
		a, err := c.asked(w, popMessage, map[string]string{
			"consumerGroup": group, "topic": *topic, "queueId": "-1", "maxMsgNums": strconv.Itoa(*batch), "bname": q.broker,
			"invisibleTime": "60000", "pollTime": "0", "bornTime": strconv.FormatInt(time.Now().UnixMilli(), 10),
			"initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
		})
		if err != nil {
			return err
		}
		switch a.Code {
		case success:
		case pollingFull, pollingTimeout:
			time.Sleep(time.Millisecond) // others have them
			continue
		default:
			return fmt.Errorf("pop: code %d %s", a.Code, a.Remark)
		}
		starts := map[string]string{}
		for _, part := range strings.Split(a.Fields["startOffsetInfo"], ";") {
			if words := strings.Fields(part); len(words) == 3 {
				starts[words[1]] = words[2]
			}
		}
		asked := 0
		for rest := w.body; len(rest) > 0; asked++ {
			if len(rest) < 88 {
				return errors.New("a message in the answer is cut off")
			}
			queueId := strconv.Itoa(int(binary.BigEndian.Uint32(rest[12:])))
			offset := strconv.FormatUint(binary.BigEndian.Uint64(rest[20:]), 10)
			rest = rest[binary.BigEndian.Uint32(rest):]
			handle := strings.Join([]string{
				starts[queueId], a.Fields["popTime"], a.Fields["invisibleTime"], a.Fields["reviveQid"], "0", q.broker, queueId, offset,
			}, " ")
			go func() { failures <- ack(c, group, queueId, offset, handle) }()
		}
		for range asked {
			if err := <-failures; err != nil {
				return err
			}
		}
		acked.Add(int64(asked))
	}
	return nil
}

func ack(c *connection, group, queueId, offset, handle string) error {
	a, err := c.asked(newWaiter(), ackMessage, map[string]string{
		"consumerGroup": group, "topic": *topic, "queueId": queueId, "offset": offset, "extraInfo": handle,
	})
	if err == nil && a.Code != success {
		err = fmt.Errorf("ack: code %d %s", a.Code, a.Remark)
	}
	return err
}
