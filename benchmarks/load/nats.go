package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsSystem is a stream of three replicas on files. Senders and groups are connected to the stream's leader.
type natsSystem struct {
	at          []string
	mu          sync.Mutex
	connections map[int]jetstream.JetStream
	leader      string // the address to dial
}

func newNats(at []string) system {
	return &natsSystem{at: at, connections: map[int]jetstream.JetStream{}}
}

func dialNats(addresses ...string) (jetstream.JetStream, error) {
	conn, err := nats.Connect("nats://"+strings.Join(addresses, ",nats://"), nats.DontRandomize())
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

// open tries until the servers listen and their cluster has formed.
func (n *natsSystem) open(topic string, queues int) (err error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if n.leader, err = n.leaderOf(topic, queues > 0); err == nil {
			return nil
		}
	}
	return fmt.Errorf("stream %s is not there after 30 s: %w", topic, err)
}

// leaderOf returns the address of a stream's leader.
func (n *natsSystem) leaderOf(topic string, mayMake bool) (string, error) {
	js, err := dialNats(n.at...)
	if err != nil {
		return "", err
	}
	defer js.Conn().Close()
	call, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	stream, err := js.Stream(call, topic)
	if err != nil && mayMake {
		stream, err = js.CreateStream(call, jetstream.StreamConfig{
			Name: topic, Subjects: []string{topic + ".>"}, Storage: jetstream.FileStorage, Replicas: 3,
		})
	}
	if err != nil {
		return "", err
	}
	var number int
	if cluster := stream.CachedInfo().Cluster; cluster != nil {
		if _, err = fmt.Sscanf(cluster.Leader, "n%d", &number); err == nil {
			return n.at[number], nil
		}
	}
	return "", fmt.Errorf("stream %s has no leader", topic)
}

func (n *natsSystem) connection(index int) (jetstream.JetStream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connections[index] == nil {
		js, err := dialNats(n.leader)
		if err != nil {
			return nil, err
		}
		n.connections[index] = js
	}
	return n.connections[index], nil
}

func (n *natsSystem) sender(topic string, index, conn int) (func([]byte) error, error) {
	js, err := n.connection(conn)
	if err != nil {
		return nil, err
	}
	subject := topic + ".a"
	return func(body []byte) error {
		_, err := js.Publish(context.Background(), subject, body)
		return err
	}, nil
}

func (n *natsSystem) consumer(js jetstream.JetStream, topic string, from jetstream.DeliverPolicy) (jetstream.Consumer, error) {
	return js.OrderedConsumer(context.Background(), topic, jetstream.OrderedConsumerConfig{DeliverPolicy: from})
}

func (n *natsSystem) follow(topic, group string, got func([]byte)) error {
	js, err := dialNats(n.leader)
	if err != nil {
		return err
	}
	consumer, err := n.consumer(js, topic, jetstream.DeliverNewPolicy)
	if err != nil {
		return err
	}
	_, err = consumer.Consume(func(message jetstream.Msg) { got(message.Data()) })
	return err
}

func (n *natsSystem) read(topic string, got func([]byte)) error {
	js, err := n.connection(0)
	if err != nil {
		return err
	}
	stream, err := js.Stream(context.Background(), topic)
	if err != nil {
		return err
	}
	consumer, err := n.consumer(js, topic, jetstream.DeliverAllPolicy)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for last := stream.CachedInfo().State.LastSeq; ; {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		got(message.Data())
		if place, err := message.Metadata(); err != nil || place.Sequence.Stream >= last {
			return err
		}
	}
}
