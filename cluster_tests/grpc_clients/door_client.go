// The official gRPC client for Go, with its own default of TLS: `door_client endpoint topic`. What it is told stands in
// originals/doors/grpc_client.py, which also drives DoorClient.java, door_client.py and door_client.js.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

type event map[string]interface{}

var (
	printing      sync.Mutex
	endpoint      string
	producer      rmq.Producer
	recallHandles sync.Map
	counting      sync.Mutex
	deliveries    = map[string]int{}
	consumers     sync.Map
	held          sync.Map
)

func main() {
	endpoint = os.Args[1]
	var err error
	producer, err = rmq.NewProducer(config(""), rmq.WithTopics(os.Args[2]),
		rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
	if err == nil {
		err = producer.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tell(event{"event": "started"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		go func() {
			if err := run(words); err != nil {
				tell(event{"event": "failed", "of": words[0], "key": words[1], "error": err.Error()})
			}
		}()
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{
		AccessKey: os.Getenv("ACCESS_KEY"), AccessSecret: os.Getenv("SECRET_KEY")}}
}

func tell(what event) {
	line, _ := json.Marshal(what)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func run(words []string) error {
	ctx := context.Background()
	switch words[0] {
	case "send":
		receipts, err := producer.Send(ctx, message(words, 3))
		if err == nil {
			sent(words[1], receipts[0])
		}
		return err
	case "transact":
		return transact(ctx, words)
	case "recall":
		handle, _ := recallHandles.Load(words[1])
		_, err := producer.Recall(ctx, words[2], handle.(string))
		return told(err, event{"event": "recalled", "key": words[1]})
	case "push":
		return push(words[1], words[2], filter(words))
	case "simple":
		consumer, err := rmq.NewSimpleConsumer(config(words[2]), rmq.WithSimpleAwaitDuration(6*time.Second),
			rmq.WithSimpleSubscriptionExpressions(filter(words)))
		if err == nil {
			err = consumer.Start()
		}
		consumers.Store(words[2], consumer)
		return told(err, event{"event": "consuming", "group": words[2]})
	case "receive":
		return receive(ctx, words[1], words[2], millis(words[3]))
	case "ack":
		consumer, view := of(words)
		return told(consumer.Ack(ctx, view), event{"event": "acked", "group": words[2], "key": words[1]})
	case "hide":
		consumer, view := of(words)
		return told(consumer.ChangeInvisibleDuration(view, millis(words[3])), event{"event": "hidden", "group": words[2], "key": words[1]})
	}
	return fmt.Errorf("no such command")
}

// told tells of what came to be without an error.
func told(err error, what event) error {
	if err == nil {
		tell(what)
	}
	return err
}

// message: words from `first` on are NAME=VALUE: tag, group and at_ms of the message itself, or properties.
func message(words []string, first int) *rmq.Message {
	made := &rmq.Message{Topic: words[2], Body: []byte(words[1] + " body")}
	made.SetKeys(words[1])
	for _, word := range words[first:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "tag":
			made.SetTag(value)
		case "group":
			made.SetMessageGroup(value)
		case "at_ms":
			at, _ := strconv.ParseInt(value, 10, 64)
			made.SetDelayTimestamp(time.UnixMilli(at))
		default:
			made.AddProperty(name, value)
		}
	}
	return made
}

func sent(key string, receipt *rmq.SendReceipt) {
	recallHandles.Store(key, receipt.RecallHandle)
	tell(event{"event": "sent", "key": key, "id": receipt.MessageID})
}

func transact(ctx context.Context, words []string) error {
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(ctx, message(words, 4), transaction)
	if err != nil {
		return err
	}
	sent(words[1], receipts[0])
	switch words[3] {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return told(err, event{"event": "ended", "key": words[1], "state": words[3]})
}

func check(view *rmq.MessageView) rmq.TransactionResolution {
	decision := view.GetProperties()["decision"]
	tell(event{"event": "checked", "key": view.GetKeys()[0], "body": string(view.GetBody()), "topic": view.GetTopic(), "decision": decision})
	if decision == "commit" {
		return rmq.COMMIT
	}
	return rmq.ROLLBACK
}

func filter(words []string) map[string]*rmq.FilterExpression {
	kind := rmq.TAG
	if words[3] == "SQL92" {
		kind = rmq.SQL92
	}
	return map[string]*rmq.FilterExpression{words[1]: rmq.NewFilterExpressionWithType(words[4], kind)}
}

func push(topic string, group string, filter map[string]*rmq.FilterExpression) error {
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		counting.Lock()
		deliveries[group+"\t"+view.GetKeys()[0]]++
		count := deliveries[group+"\t"+view.GetKeys()[0]]
		counting.Unlock()
		limit, _ := strconv.Atoi(view.GetProperties()["fails"])
		received(group, view, count <= limit)
		if count <= limit {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	consumer, err := rmq.NewPushConsumer(config(group), rmq.WithPushAwaitDuration(6*time.Second),
		rmq.WithPushSubscriptionExpressions(filter), rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err == nil {
		err = consumer.Start()
	}
	return told(err, event{"event": "consuming", "group": group})
}

func receive(ctx context.Context, group string, count string, invisible time.Duration) error {
	consumer, _ := consumers.Load(group)
	limit, _ := strconv.Atoi(count)
	views, err := consumer.(rmq.SimpleConsumer).Receive(ctx, int32(limit), invisible)
	if status, ok := rmq.AsErrRpcStatus(err); ok && v2.Code(status.Code) == v2.Code_MESSAGE_NOT_FOUND {
		err = nil // how this client says that there is none
	}
	for _, view := range views {
		held.Store(group+"\t"+view.GetKeys()[0], view)
		received(group, view, false)
	}
	return told(err, event{"event": "polled", "group": group, "count": len(views)})
}

// of: the consumer of a group, and the newest delivery of a key to it.
func of(words []string) (rmq.SimpleConsumer, *rmq.MessageView) {
	consumer, _ := consumers.Load(words[2])
	view, _ := held.Load(words[2] + "\t" + words[1])
	return consumer.(rmq.SimpleConsumer), view.(*rmq.MessageView)
}

func received(group string, view *rmq.MessageView, fails bool) {
	tell(event{"event": "received", "group": group, "key": view.GetKeys()[0], "body": string(view.GetBody()), "id": view.GetMessageId(),
		"tag": text(view.GetTag()), "message_group": text(view.GetMessageGroup()), "attempt": view.GetDeliveryAttempt(),
		"topic": view.GetTopic(), "fails": fails})
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func millis(number string) time.Duration {
	count, _ := strconv.ParseInt(number, 10, 64)
	return time.Duration(count) * time.Millisecond
}
