package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
)

const jsonHeaderVersion = 453 // of a 5.x client, which gets JSON that others can read

// waiter is one request on its way; it is used again and again by one sender.
type waiter struct {
	done   chan struct{}
	header []byte
	body   []byte
	err    error
}

func newWaiter() *waiter { return &waiter{done: make(chan struct{}, 1)} }

type answer struct {
	Code   int               `json:"code"`
	Remark string            `json:"remark"`
	Fields map[string]string `json:"extFields"`
}

var codeKey = []byte(`"code":`)
var opaqueKey = []byte(`"opaque":`)

// number finds the number behind a key of the header's outermost level; no value of ours contains these keys.
func number(header, key []byte) int {
	begin := bytes.Index(header, key)
	if begin < 0 {
		return -1
	}
	value := 0
	for _, digit := range bytes.TrimLeft(header[begin+len(key):], " ") {
		if digit < '0' || digit > '9' {
			break
		}
		value = 10*value + int(digit-'0')
	}
	return value
}

// connection carries requests of several senders. What has piled up goes out in one write.
type connection struct {
	conn    net.Conn
	mu      sync.Mutex
	pending []byte
	waiting map[int]*waiter
	opaque  int
	wake    chan struct{}
	failure error
}

func dial(address string) (*connection, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &connection{conn: conn, waiting: map[int]*waiter{}, wake: make(chan struct{}, 1)}
	go c.write(conn)
	go c.readAll(conn)
	return c, nil
}

func (c *connection) write(conn net.Conn) {
	var spare []byte
	for range c.wake {
		runtime.Gosched() // other senders come first: what they send goes out with the same write
		c.mu.Lock()
		out := c.pending
		c.pending = spare[:0]
		c.mu.Unlock()
		if _, err := conn.Write(out); err != nil {
			return // the reader hears of it too
		}
		spare = out
	}
}

func (c *connection) readAll(conn net.Conn) {
	reader := bufio.NewReaderSize(conn, 1<<18)
	for {
		lengths, err := reader.Peek(8)
		if err != nil {
			c.fail(err)
			return
		}
		headerSize := int(binary.BigEndian.Uint32(lengths[4:]) & 0xffffff)
		bodySize := int(binary.BigEndian.Uint32(lengths)) - 4 - headerSize
		frame, err := reader.Peek(8 + headerSize)
		if err != nil {
			c.fail(err)
			return
		}
		header := frame[8:]
		opaque := number(header, opaqueKey)
		c.mu.Lock()
		w := c.waiting[opaque]
		delete(c.waiting, opaque)
		c.mu.Unlock()
		if w == nil { // a request of the broker's: that others have joined a group
			if _, err := reader.Discard(len(frame) + bodySize); err != nil {
				c.fail(err)
				return
			}
			continue
		}
		w.header = append(w.header[:0], header...)
		_, _ = reader.Discard(len(frame))
		if cap(w.body) < bodySize {
			w.body = make([]byte, bodySize)
		}
		w.body = w.body[:bodySize]
		if _, err := io.ReadFull(reader, w.body); err != nil {
			w.err = err
		}
		w.done <- struct{}{}
	}
}

func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = fmt.Errorf("the connection has ended: %w", err)
	for opaque, w := range c.waiting {
		delete(c.waiting, opaque)
		w.err = c.failure
		w.done <- struct{}{}
	}
}

// ask sends one request and waits for its answer. `fields` are the JSON of extFields.
func (c *connection) ask(w *waiter, code int, fields, body []byte) error {
	w.err = nil
	c.mu.Lock()
	if c.failure != nil {
		c.mu.Unlock()
		return c.failure
	}
	c.opaque++
	c.waiting[c.opaque] = w
	begin := len(c.pending)
	out := append(c.pending, 0, 0, 0, 0, 0, 0, 0, 0)
	out = append(out, `{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, `,"extFields":`...)
	out = append(out, fields...)
	out = append(out, `,"flag":0,"language":"GO","opaque":`...)
	out = strconv.AppendInt(out, int64(c.opaque), 10)
	out = append(out, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	out = strconv.AppendInt(out, jsonHeaderVersion, 10)
	out = append(out, '}')
	headerSize := len(out) - begin - 8
	out = append(out, body...)
	binary.BigEndian.PutUint32(out[begin:], uint32(len(out)-begin-4))
	binary.BigEndian.PutUint32(out[begin+4:], uint32(headerSize))
	c.pending = out
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	<-w.done
	return w.err
}

// asked is ask for the few requests that are not the load.
func (c *connection) asked(w *waiter, code int, fields map[string]string) (answer, error) {
	encoded, _ := json.Marshal(fields)
	var a answer
	if err := c.ask(w, code, encoded, nil); err != nil {
		return a, err
	}
	return a, json.Unmarshal(w.header, &a)
}
