// Transactions, timers, filters and requests with RocketMQ's Go client: `kinds namesrv group instance`.
// What it is told stands in originals/kinds_client.py, which also drives java/Kinds.java and node/kinds.js.
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

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type event map[string]interface{}

type plainProducer interface {
	SendSync(ctx context.Context, messages ...*primitive.Message) (*primitive.SendResult, error)
	Request(ctx context.Context, timeout time.Duration, message *primitive.Message) (*primitive.Message, error)
}

type verdicts struct{ now sync.Map }

var (
	printing     sync.Mutex
	servers      primitive.NamesrvAddr
	instance     string
	keys         = primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
	plain        plainProducer
	transactions rocketmq.TransactionProducer
	listener     verdicts
)

func main() {
	rlog.SetLogLevel("fatal")
	servers, instance = primitive.NamesrvAddr{os.Args[1]}, os.Args[3]
	var err error
	// The first: the client of this instance takes checks for the group that made it, and for no other.
	transactions, err = rocketmq.NewTransactionProducer(&listener, options(os.Args[2])...)
	check(err)
	check(transactions.Start())
	// A producer of transactions sends nothing else.
	started, err := rocketmq.NewProducer(options(os.Args[2] + "_plain")...)
	check(err)
	check(started.Start())
	plain = started
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

func options(group string) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(servers),
		producer.WithGroupName(group),
		producer.WithInstanceName(instance),
		producer.WithCredentials(keys),                // without them, nothing is signed
		producer.WithTls(os.Getenv("TLS") == "true"),  // the library has one setting for all clients of a process
		producer.WithRetry(0),                         // a key stands for one send
		producer.WithSendMsgTimeout(20 * time.Second), // a busy machine is no failure
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(what event) {
	line, err := json.Marshal(what)
	check(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func run(words []string) error {
	ctx := context.Background()
	switch words[0] {
	case "send":
		result, err := plain.SendSync(ctx, message(words, 3))
		if err == nil {
			sent(words[1], result, "")
		}
		return err
	case "transact":
		listener.now.Store(words[1], words[3])
		made := message(words, 5)
		made.WithProperty("decision", words[4])
		result, err := transactions.SendMessageInTransaction(ctx, made)
		if err == nil {
			sent(words[1], result.SendResult, words[3])
		}
		return err
	case "request":
		timeout, _ := strconv.Atoi(words[3])
		reply, err := plain.Request(ctx, time.Duration(timeout)*time.Millisecond, message(words, 4))
		if err == nil && reply == nil {
			err = fmt.Errorf("neither a reply nor an error")
		}
		if err == nil {
			tell(event{"event": "replied", "key": words[1], "body": string(reply.Body)})
		}
		return err
	case "consume":
		return consume(words)
	case "reply":
		return reply(words)
	}
	return fmt.Errorf("no such command")
}

// message: words from `first` on are properties, NAME=VALUE.
func message(words []string, first int) *primitive.Message {
	made := primitive.NewMessage(words[2], []byte("body of "+words[1])).WithKeys([]string{words[1]})
	for _, word := range words[first:] {
		name, value, _ := strings.Cut(word, "=")
		made.WithProperty(name, value)
	}
	return made
}

func sent(key string, result *primitive.SendResult, state string) {
	name := "sent"
	if result.Status != primitive.SendOK {
		name = "failed"
	}
	told := event{"event": name, "of": "send", "key": key, "state": state, "msg_id": result.MsgID}
	if result.MessageQueue != nil {
		told["queue"], told["offset"] = result.MessageQueue.QueueId, result.QueueOffset
	}
	tell(told)
}

func (v *verdicts) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	now, _ := v.now.Load(message.GetKeys())
	return state(now.(string))
}

func (v *verdicts) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	decision := message.GetProperty("decision")
	tell(event{"event": "checked", "key": message.GetKeys(), "body": string(message.Body), "topic": message.Topic,
		"decision": decision, "transaction": message.TransactionId})
	return state(decision)
}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func start(topic string, group string, selector consumer.MessageSelector, handle handler) error {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers),
		consumer.WithGroupName(group),
		consumer.WithInstance(instance),
		consumer.WithCredentials(keys),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err == nil {
		err = made.Subscribe(topic, selector, handle)
	}
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		tell(event{"event": "consuming", "group": group})
	}
	return err
}

func consume(words []string) error {
	selector := consumer.MessageSelector{Type: consumer.ExpressionType(words[3]), Expression: words[4]}
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			tell(event{"event": "received", "group": words[2], "key": m.GetKeys(), "body": string(m.Body), "tag": m.GetTags(),
				"queue": m.Queue.QueueId, "offset": m.QueueOffset, "times": m.ReconsumeTimes,
				"born_ms": m.BornTimestamp, "stored_ms": m.StoreTimestamp})
		}
		return consumer.ConsumeSuccess, nil
	}
	return start(words[1], words[2], selector, handle)
}

func reply(words []string) error {
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			tell(event{"event": "requested", "key": m.GetKeys()})
			if m.GetProperty("mute") != "" {
				continue
			}
			key := "reply to " + m.GetKeys()
			made, err := consumer.CreateReplyMessage(m, nil)
			if err == nil {
				made.Body = []byte(key) // which CreateReplyMessage would read as properties
				var result *primitive.SendResult
				result, err = plain.SendSync(ctx, made)
				if err == nil {
					sent(key, result, "")
				}
			}
			if err != nil {
				tell(event{"event": "failed", "of": "reply", "key": key, "error": err.Error()})
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	return start(words[1], words[2], consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, handle)
}
