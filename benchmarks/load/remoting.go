package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// RocketMQ's request and response codes.
const (
	pullMessage    = 11
	createTopic    = 17
	maxOffset      = 30
	minOffset      = 31
	endTransaction = 37
	routeOfTopic   = 105
	sendMessageV2  = 310

	success         = 0
	topicNotExist   = 17
	pullNotFound    = 19
	pullRetry       = 20
	pullOffsetMoved = 21

	templateTopic = "TBW102"
	pullCount     = 32
	readBack      = 4     // the filter is in the header
	longPoll      = 4 | 2 // and the broker may hold the request
)

type queue struct {
	broker, address string
	id              int
}

type remoting struct {
	namesrv     string
	mu          sync.Mutex
	connections map[string]*connection
	queues      map[string][]queue
}

func newRemoting(at []string) system {
	return &remoting{namesrv: at[0], connections: map[string]*connection{}, queues: map[string][]queue{}}
}

// connection returns number `index` of those to an address.
func (r *remoting) connection(address string, index int) (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprint(address, " ", index)
	if r.connections[key] == nil {
		c, err := dial(address)
		if err != nil {
			return nil, err
		}
		r.connections[key] = c
	}
	return r.connections[key], nil
}

func (r *remoting) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.connections {
		_ = c.conn.Close()
	}
}

// route returns the queues of a topic on masters; nil where there is no such topic.
func (r *remoting) route(topic string) ([]queue, error) {
	c, err := r.connection(r.namesrv, 0)
	if err != nil {
		return nil, err
	}
	w := newWaiter()
	a, err := c.asked(w, routeOfTopic, map[string]string{"topic": topic, "acceptStandardJsonOnly": "true"})
	if err != nil || a.Code == topicNotExist {
		return nil, err
	}
	var route struct {
		BrokerDatas []struct {
			BrokerName  string
			BrokerAddrs map[string]string
		}
		QueueDatas []struct {
			BrokerName     string
			WriteQueueNums int
		}
	}
	if err := json.Unmarshal(w.body, &route); err != nil {
		return nil, fmt.Errorf("route of %s: %w", topic, err)
	}
	masters := map[string]string{}
	for _, broker := range route.BrokerDatas {
		masters[broker.BrokerName] = broker.BrokerAddrs["0"]
	}
	var found []queue
	for _, data := range route.QueueDatas {
		for id := 0; id < data.WriteQueueNums && masters[data.BrokerName] != ""; id++ {
			found = append(found, queue{data.BrokerName, masters[data.BrokerName], id})
		}
	}
	return found, nil
}

func (r *remoting) open(topic string, queues int) error {
	template, err := r.route(templateTopic)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if r.queues[topic], err = r.route(topic); err != nil || len(r.queues[topic]) > 0 {
			return err
		}
		if queues == 0 {
			return fmt.Errorf("there is no topic %s", topic)
		}
		if len(template) == 0 {
			if template, err = r.route(templateTopic); err != nil {
				return err
			}
		}
		for _, q := range template {
			if q.id > 0 {
				continue
			}
			c, err := r.connection(q.address, 0)
			if err != nil {
				return err
			}
			count := strconv.Itoa(queues)
			if _, err = c.asked(newWaiter(), createTopic, map[string]string{
				"topic": topic, "defaultTopic": templateTopic, "readQueueNums": count, "writeQueueNums": count,
				"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
			}); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("topic %s has got no route within 30 s", topic)
}

// UNIQ_KEY is 32 hexadecimal digits: where and who made it, and a number.
var processKey = fmt.Sprintf("7F000001%08X", os.Getpid())
var unique atomic.Uint64

func appendHex(out []byte, value uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		out = append(out, "0123456789ABCDEF"[value>>shift&15])
	}
	return out
}

// A send of the plain kind: the properties are those of a client that sets keys and a tag.
func plainProperties(out []byte) []byte { return append(out, `\u0002TAGS\u0001A`...) }

func (r *remoting) sender(topic string, index, conn int) (func([]byte) error, error) {
	if *transactions {
		return r.transaction(topic, index, conn)
	}
	send, _, err := r.sends(topic, index, conn, 0, plainProperties)
	return send, err
}

// sends returns what sends one body to the next queue, and the waiter that has its answer then. `properties` appends
// those that are not the same for all messages.
func (r *remoting) sends(topic string, index, conn, sysFlag int, properties func([]byte) []byte) (func([]byte) error, *waiter, error) {
	queues := r.queues[topic]
	connections := make([]*connection, len(queues))
	for i, q := range queues {
		var err error
		if connections[i], err = r.connection(q.address, conn); err != nil {
			return nil, nil, err
		}
	}
	at := index
	w := newWaiter()
	var fields []byte
	return func(body []byte) error {
		at++
		q := queues[at%len(queues)]
		// The single-letter names of SEND_MESSAGE_V2.
		fields = append(fields[:0], `{"a":"load","b":"`...)
		fields = append(fields, topic...)
		fields = append(fields, `","c":"TBW102","d":"4","e":"`...)
		fields = strconv.AppendInt(fields, int64(q.id), 10)
		fields = append(fields, `","f":"`...)
		fields = strconv.AppendInt(fields, int64(sysFlag), 10)
		fields = append(fields, `","g":"`...)
		fields = strconv.AppendInt(fields, time.Now().UnixMilli(), 10)
		fields = append(fields, `","h":"0","i":"KEYS\u0001k`...)
		fields = strconv.AppendInt(fields, int64(index), 10)
		fields = append(fields, '-')
		fields = strconv.AppendInt(fields, int64(at), 10)
		fields = append(fields, `\u0002UNIQ_KEY\u0001`...)
		fields = appendHex(append(fields, processKey...), unique.Add(1))
		fields = append(fields, `\u0002WAIT\u0001true`...)
		fields = properties(fields)
		fields = append(fields, `","j":"0","k":"false","m":"false","n":"`...)
		fields = append(fields, q.broker...)
		fields = append(fields, `"}`...)
		if err := connections[at%len(queues)].ask(w, sendMessageV2, fields, body); err != nil {
			return err
		}
		if number(w.header, codeKey) != success {
			return fmt.Errorf("answer %s", w.header)
		}
		return nil
	}, w, nil
}

// pull asks for what a queue has from an offset on; returned is the offset to go on with.
func pull(c *connection, w *waiter, group, topic string, q queue, offset int64, flags int, got func(int64, []byte)) (int64, error) {
	suspend := "0"
	if flags == longPoll {
		suspend = "15000"
	}
	a, err := c.asked(w, pullMessage, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(q.id), "bname": q.broker,
		"queueOffset": strconv.FormatInt(offset, 10), "maxMsgNums": strconv.Itoa(pullCount), "commitOffset": "0",
		"sysFlag": strconv.Itoa(flags), "suspendTimeoutMillis": suspend, "subscription": *expression, "subVersion": "0",
		"expressionType": *expressionType,
	})
	if err != nil {
		return offset, err
	}
	switch a.Code {
	case success:
		for rest := w.body; len(rest) > 0; {
			if len(rest) < 88 {
				return offset, errors.New("a message in the answer is cut off")
			}
			body := rest[88:]
			got(int64(binary.BigEndian.Uint64(rest[20:])), body[:binary.BigEndian.Uint32(rest[84:])])
			rest = rest[binary.BigEndian.Uint32(rest):]
		}
	case pullNotFound, pullRetry, pullOffsetMoved:
	default:
		return offset, fmt.Errorf("pull of queue %d: code %d %s", q.id, a.Code, a.Remark)
	}
	return strconv.ParseInt(a.Fields["nextBeginOffset"], 10, 64)
}

func (r *remoting) end(topic string, q queue, code int) (int64, error) {
	c, err := r.connection(q.address, 0)
	if err != nil {
		return 0, err
	}
	a, err := c.asked(newWaiter(), code, map[string]string{"topic": topic, "queueId": strconv.Itoa(q.id), "bname": q.broker})
	if err != nil || a.Code != success {
		return 0, fmt.Errorf("offset of queue %d: %v %s", q.id, err, a.Remark)
	}
	return strconv.ParseInt(a.Fields["offset"], 10, 64)
}

// The groups have connection numbers above those of the senders.
const firstGroupConnection = 1 << 20

var groupCount atomic.Int32

func (r *remoting) follow(topic, group string, got func([]byte)) error {
	number := firstGroupConnection + int(groupCount.Add(1))
	for _, q := range r.queues[topic] {
		offset, err := r.end(topic, q, maxOffset)
		if err != nil {
			return err
		}
		c, err := r.connection(q.address, number)
		if err != nil {
			return err
		}
		go func() {
			for w := newWaiter(); ; {
				if offset, err = pull(c, w, group, topic, q, offset, longPoll, func(_ int64, body []byte) { got(body) }); err != nil {
					fail(err)
				}
			}
		}()
	}
	return nil
}

func (r *remoting) read(topic string, got func([]byte)) error {
	failures := make(chan error)
	queues := r.queues[topic]
	for _, q := range queues {
		go func() { failures <- r.readQueue(topic, q, got) }()
	}
	var all error
	for range queues {
		all = errors.Join(all, <-failures)
	}
	return all
}

func (r *remoting) readQueue(topic string, q queue, got func([]byte)) error {
	offset, err := r.end(topic, q, minOffset)
	if err != nil {
		return err
	}
	end, err := r.end(topic, q, maxOffset)
	if err != nil {
		return err
	}
	c, err := r.connection(q.address, 0)
	if err != nil {
		return err
	}
	scanned.Add(end - offset)
	for w := newWaiter(); offset < end; {
		if offset, err = pull(c, w, "load_read", topic, q, offset, readBack, func(offset int64, body []byte) {
			if offset < end {
				got(body)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
