package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// Of RocketMQ's own protocol.
	updateConsumerOffset = 15
	updateGroup          = 200

	heartbeatInterval = 10 * time.Second // of RocketMQ's clients
	pollTime          = 10 * time.Second
	idleGroups        = 10
)

// grpcSystem is a gRPC proxy. What is not measured goes straight to its brokers: a topic is made, filled, and a group
// placed at its end.
type grpcSystem struct {
	*remoting
	proxy     string
	mu        sync.Mutex
	producers map[int]*client
}

func newGrpc(at []string) system {
	if len(at) != 2 {
		fail(errors.New("-system grpc needs -at NAMESERVER,PROXY"))
	}
	return &grpcSystem{remoting: newRemoting(at[:1]).(*remoting), proxy: at[1], producers: map[int]*client{}}
}

func asGrpc(s system) (*grpcSystem, error) {
	g, is := s.(*grpcSystem)
	if !is {
		return nil, errors.New("only -system grpc receives, and has clients that are idle")
	}
	return g, nil
}

// client is one client of the proxy's, on a connection of its own: its settings are known there, and it sends
// heartbeats.
type client struct {
	v2.MessagingServiceClient
	ctx context.Context
}

var clientCount atomic.Int64

func (g *grpcSystem) client(settings *v2.Settings) (*client, error) {
	conn, err := grpc.NewClient(g.proxy, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	c := &client{v2.NewMessagingServiceClient(conn), metadata.AppendToOutgoingContext(context.Background(),
		"x-mq-client-id", fmt.Sprintf("load@%d@%d", os.Getpid(), clientCount.Add(1)),
		"x-mq-language", "GO", "x-mq-client-version", "5.1.4",
	)}
	stream, err := c.Telemetry(c.ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err := checked("settings", answer.GetStatus(), err); err != nil {
		return nil, err
	}
	go func() {
		for {
			if _, err := stream.Recv(); err != nil { // commands of the proxy's are not answered
				fail(fmt.Errorf("telemetry: %w", err))
			}
		}
	}()
	go func() {
		beat := &v2.HeartbeatRequest{ClientType: settings.GetClientType(), Group: settings.GetSubscription().GetGroup()}
		for wait := rand.N(heartbeatInterval); ; wait = heartbeatInterval {
			time.Sleep(wait)
			answer, err := c.Heartbeat(c.ctx, beat)
			if err := checked("heartbeat", answer.GetStatus(), err); err != nil {
				fail(err)
			}
		}
	}()
	return c, nil
}

// checked returns the error of a call, or that of its answer.
func checked(what string, status *v2.Status, err error) error {
	if err == nil && status.GetCode() != v2.Code_OK {
		err = fmt.Errorf("code %v %s", status.GetCode(), status.GetMessage())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (g *grpcSystem) producer(topic string, conn int) (*client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.producers[conn] == nil {
		c, err := g.client(&v2.Settings{
			ClientType: v2.ClientType_PRODUCER.Enum(),
			PubSub:     &v2.Settings_Publishing{Publishing: &v2.Publishing{Topics: []*v2.Resource{{Name: topic}}}},
		})
		if err != nil {
			return nil, err
		}
		g.producers[conn] = c
	}
	return g.producers[conn], nil
}

func (g *grpcSystem) sender(topic string, index, conn int) (func([]byte) error, error) {
	c, err := g.producer(topic, conn)
	if err != nil {
		return nil, err
	}
	tag := "A"
	properties := &v2.SystemProperties{
		Tag: &tag, BornHost: "load", BodyEncoding: v2.Encoding_IDENTITY, MessageType: v2.MessageType_NORMAL,
	}
	message := &v2.Message{Topic: &v2.Resource{Name: topic}, SystemProperties: properties}
	request := &v2.SendMessageRequest{Messages: []*v2.Message{message}}
	return func(body []byte) error {
		message.Body = body
		properties.MessageId = string(appendHex([]byte(processKey), unique.Add(1)))
		properties.BornTimestamp = timestamppb.Now()
		answer, err := c.SendMessage(c.ctx, request)
		return checked("send", answer.GetStatus(), err)
	}, nil
}

func (g *grpcSystem) consumer(topic, group string) (*client, error) {
	subscription := &v2.Subscription{
		Group:         &v2.Resource{Name: group},
		Subscriptions: []*v2.SubscriptionEntry{{Topic: &v2.Resource{Name: topic}, Expression: everything}},
	}
	return g.client(&v2.Settings{
		ClientType: v2.ClientType_SIMPLE_CONSUMER.Enum(), PubSub: &v2.Settings_Subscription{Subscription: subscription},
	})
}

var everything = &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"}

// receiver returns what waits for messages, -batch at most, and acknowledges them. It returns how many there were.
func (g *grpcSystem) receiver(topic, group string) (func(got func([]byte)) (int, error), error) {
	c, err := g.consumer(topic, group)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(g.proxy)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	endpoints := &v2.Endpoints{Scheme: v2.AddressScheme_IPv4, Addresses: []*v2.Address{{Host: host, Port: int32(number)}}}
	route, err := c.QueryRoute(c.ctx, &v2.QueryRouteRequest{Topic: &v2.Resource{Name: topic}, Endpoints: endpoints})
	if err := checked("route", route.GetStatus(), err); err != nil {
		return nil, err
	}
	request := &v2.ReceiveMessageRequest{
		Group: &v2.Resource{Name: group}, MessageQueue: route.MessageQueues[0], FilterExpression: everything,
		BatchSize: int32(*batch), InvisibleDuration: durationpb.New(time.Minute), LongPollingTimeout: durationpb.New(pollTime),
	}
	failures := make(chan error, *batch)
	return func(got func([]byte)) (int, error) {
		entries, err := c.receive(request, got)
		if err != nil {
			return 0, err
		}
		asked := 0
		for part := range slices.Chunk(entries, *acks) {
			asked++
			go func() {
				answer, err := c.AckMessage(c.ctx, &v2.AckMessageRequest{
					Group: request.Group, Topic: request.MessageQueue.Topic, Entries: part,
				})
				failures <- checked("ack", answer.GetStatus(), err)
			}()
		}
		for range asked {
			err = errors.Join(err, <-failures)
		}
		return len(entries), err
	}, nil
}

func (c *client) receive(request *v2.ReceiveMessageRequest, got func([]byte)) ([]*v2.AckMessageEntry, error) {
	call, cancel := context.WithTimeout(c.ctx, 2*pollTime) // a proxy takes its limit from that of the call
	defer cancel()
	stream, err := c.ReceiveMessage(call, request)
	if err != nil {
		return nil, err
	}
	var entries []*v2.AckMessageEntry
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		if message := part.GetMessage(); message != nil {
			properties := message.GetSystemProperties()
			entries = append(entries, &v2.AckMessageEntry{
				MessageId: properties.GetMessageId(), ReceiptHandle: properties.GetReceiptHandle(),
			})
			got(message.Body)
		} else if status := part.GetStatus(); status != nil && status.Code != v2.Code_MESSAGE_NOT_FOUND {
			if err := checked("receive", status, nil); err != nil {
				return nil, err
			}
		}
	}
}

// placeAtEnd makes a group, and lets it begin with what comes from now on.
func (g *grpcSystem) placeAtEnd(topic, group string) error {
	for i, q := range g.queues[topic] {
		offset, err := g.end(topic, q, maxOffset)
		if err != nil {
			return err
		}
		c, err := g.connection(q.address, 0)
		if err != nil {
			return err
		}
		w := newWaiter()
		if i == 0 { // all queues of the topic are at one broker
			err := c.ask(w, updateGroup, []byte("{}"), fmt.Appendf(nil, `{"groupName":%q}`, group))
			if err != nil || number(w.header, codeKey) != success {
				return fmt.Errorf("group %s is not made: %v %s", group, err, w.header)
			}
		}
		a, err := c.asked(w, updateConsumerOffset, map[string]string{
			"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(q.id), "bname": q.broker,
			"commitOffset": strconv.FormatInt(offset, 10),
		})
		if err != nil || a.Code != success {
			return fmt.Errorf("offset of group %s: %v %s", group, err, a.Remark)
		}
	}
	return nil
}

func (g *grpcSystem) follow(topic, group string, got func([]byte)) error {
	if err := g.placeAtEnd(topic, group); err != nil {
		return err
	}
	receive, err := g.receiver(topic, group)
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := receive(got); err != nil {
				fail(err)
			}
		}
	}()
	return nil
}

// receives has -senders consumers of one group receive and acknowledge -count messages.
func receives(s system) (map[string]any, error) {
	g, err := asGrpc(s)
	if err != nil {
		return nil, err
	}
	if err := g.open(*topic, *queues); err != nil {
		return nil, err
	}
	group := fmt.Sprintf("load_receive_%d", os.Getpid())
	if err := g.placeAtEnd(*topic, group); err != nil {
		return nil, err
	}
	consumers := make([]func(func([]byte)) (int, error), *senders)
	for i := range consumers {
		if consumers[i], err = g.receiver(*topic, group); err != nil {
			return nil, err
		}
	}
	failed, err := g.sendAll(nil)
	if err != nil {
		return nil, err
	}
	settle()
	var acked atomic.Int64
	ends := make(chan error, *senders)
	from := measure()
	for _, receive := range consumers {
		go func() {
			for acked.Load() < int64(*count) {
				n, err := receive(func([]byte) {})
				if err != nil {
					ends <- err
					return
				}
				acked.Add(int64(n))
			}
			ends <- nil
		}()
	}
	err = <-ends // of the consumer that has the last one; others wait for more
	to := measure()
	figures := map[string]any{"failed": failed}
	addUsage(figures, from, to, int(acked.Load()))
	return figures, err
}

// connectIdle makes clients that send heartbeats and nothing else.
func connectIdle(s system, count int) error {
	g, err := asGrpc(s)
	if err != nil {
		return err
	}
	if err := g.open(*topic, *queues); err != nil {
		return err
	}
	for i := range count {
		if _, err := g.consumer(*topic, fmt.Sprintf("load_idle_%d", i%idleGroups)); err != nil {
			return err
		}
	}
	return nil
}
