import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official client, driven from the tests: one command per process, one JSON line per event on standard output.
 *
 * <pre>
 * send    namesrv topic mode(sync|async|oneway) count interval_ms key_prefix [tag ...]
 * delay   namesrv topic level count interval_ms key_prefix
 * consume namesrv topic group instance tags            until standard input ends, each line of it commits the offsets
 * fail    namesrv topic group delay_level max_times    likewise, each message is answered RECONSUME_LATER
 * pop     namesrv topic group                          likewise, from queues that the broker says, by pulls or pops as it
 *                                                      says; the first try of each key that ends with 0 fails (5.x only)
 * read    namesrv group                                likewise, each line of it a topic: all messages of all its queues
 * mixed   namesrv topic count interval_ms key_prefix   of ten sends one is a batch of five, one is delayed by a second
 * batch   namesrv topic count size key_prefix          so many batches
 * every   namesrv topic                                until standard input ends: consumers of every kind, told apart by
 *                                                      "who"; retry-1 takes a message at its second try only
 * traced  namesrv topic group count key_prefix         likewise: sends, then consumes; both write traces
 * query   namesrv topic                                likewise, each line of it a key and an offset message id
 * </pre>
 *
 * A failed send is reported and not repeated by the program (the client's own retries stay on), so a key stands for one
 * call of send().
 */
public final class Interop {
    public static void main(String[] args) {
        int status = 0;
        try {
            run(args);
        } catch (Exception problem) {
            problem.printStackTrace();
            status = 1;
        }
        System.exit(status); // client threads that are not daemons must not keep an ended command alive
    }

    private static void run(String[] args) throws Exception {
        switch (args[0]) {
            case "send":
                send(args);
                break;
            case "delay":
                delay(args);
                break;
            case "consume":
                consume(args);
                break;
            case "fail":
                fail(args);
                break;
            case "pop":
                pop(args);
                break;
            case "read":
                read(args);
                break;
            case "mixed":
                mixed(args);
                break;
            case "batch":
                batch(args);
                break;
            case "every":
                every(args);
                break;
            case "traced":
                traced(args);
                break;
            case "query":
                query(args);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    private static void send(String[] args) throws Exception {
        String topic = args[2];
        String mode = args[3];
        int count = Integer.parseInt(args[4]);
        long intervalMs = Long.parseLong(args[5]);
        String prefix = args[6];
        DefaultMQProducer producer = producer(args[1]);
        Semaphore inFlight = new Semaphore(64);
        for (int i = 0; i < count; i++) {
            String tag = args.length > 7 ? args[7 + i % (args.length - 7)] : "";
            final String key = prefix + i;
            Message message = new Message(topic, tag, key, Client.body(key));
            try {
                if (mode.equals("sync")) {
                    report(key, producer.send(message));
                } else if (mode.equals("async")) {
                    inFlight.acquire();
                    producer.send(message, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            report(key, result);
                            inFlight.release();
                        }

                        @Override
                        public void onException(Throwable problem) {
                            Client.print("event", "failed", "key", key, "error", Client.why(problem));
                            inFlight.release();
                        }
                    });
                } else {
                    producer.sendOneway(message);
                    Client.print("event", "oneway", "key", key);
                }
            } catch (Exception problem) {
                if (mode.equals("async")) inFlight.release();
                Client.print("event", "failed", "key", key, "error", Client.why(problem));
            }
            if (intervalMs > 0) TimeUnit.MILLISECONDS.sleep(intervalMs);
        }
        inFlight.acquire(64);
        Client.print("event", "done"); // before the shutdown, which waits up to 3 s for a thread of the client's
        producer.shutdown();
    }

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop_producer", Client.hook());
        producer.setNamesrvAddr(namesrv);
        producer.setPollNameServerInterval(1000);
        producer.setSendMsgTimeout(5000);
        producer.start();
        return producer;
    }

    private static void mixed(String[] args) throws Exception {
        DefaultMQProducer producer = producer(args[1]);
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            List<Message> messages = new ArrayList<>();
            for (int j = 0; j < (i % 10 == 3 ? 5 : 1); j++) {
                String key = args[5] + i + "-" + j;
                messages.add(new Message(args[2], "", key, Client.body(key)));
            }
            Message first = messages.get(0);
            if (i % 10 == 7) first.setDelayTimeLevel(1);
            try {
                SendResult result = messages.size() > 1 ? producer.send(messages) : producer.send(first);
                String[] ids = result.getOffsetMsgId().split(",");
                for (int j = 0; j < messages.size(); j++)
                    Client.print("event", result.getSendStatus() == SendStatus.SEND_OK ? "ok" : result.getSendStatus(),
                        "key", messages.get(j).getKeys(), "kind", i % 10, "offset_msg_id", ids[j]);
            } catch (Exception problem) {
                for (Message message : messages) Client.print("event", "failed", "key", message.getKeys(), "error", problem);
            }
            TimeUnit.MILLISECONDS.sleep(Long.parseLong(args[4]));
        }
        Client.print("event", "done");
        producer.shutdown();
    }

    private static void batch(String[] args) throws Exception {
        DefaultMQProducer producer = producer(args[1]);
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            List<Message> messages = new ArrayList<>();
            for (int j = 0; j < Integer.parseInt(args[4]); j++) {
                String key = args[5] + i + "-" + j;
                messages.add(new Message(args[2], j % 2 == 0 ? "TagA" : "TagB", key, Client.body(key)));
            }
            try {
                report(args[5] + i, producer.send(messages));
            } catch (Exception problem) {
                Client.print("event", "failed", "key", args[5] + i, "error", problem);
            }
        }
        Client.print("event", "done");
        producer.shutdown();
    }

    private static void delay(String[] args) throws Exception {
        DefaultMQProducer producer = producer(args[1]);
        for (int i = 0; i < Integer.parseInt(args[4]); i++) {
            String key = args[6] + i;
            Message message = new Message(args[2], "", key, Client.body(key));
            message.setDelayTimeLevel(Integer.parseInt(args[3]));
            try {
                report(key, producer.send(message));
            } catch (Exception problem) {
                Client.print("event", "failed", "key", key, "error", problem);
            }
            TimeUnit.MILLISECONDS.sleep(Long.parseLong(args[5]));
        }
        Client.print("event", "done");
        producer.shutdown();
    }

    private static void report(String key, SendResult result) {
        Client.print("event", result.getSendStatus() == SendStatus.SEND_OK ? "ok" : result.getSendStatus(), "key", key,
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "msg_id", result.getMsgId(), "offset_msg_id", result.getOffsetMsgId());
    }

    private static void traced(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop_traced_producer", Client.hook(), true, null);
        producer.setSendMsgTimeout(20000);
        producer.setMqClientApiTimeout(20000); // on a busy machine a NameServer may take longer than 3 s to answer
        producer.setNamesrvAddr(args[1]);
        producer.setPollNameServerInterval(1000);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[4]); i++) {
            String key = args[5] + i;
            report(key, producer.send(new Message(args[2], "", key, Client.body(key))));
        }
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(args[3], Client.hook(), new AllocateMessageQueueAveragely(), true, null);
        consumer.setNamesrvAddr(args[1]);
        Client.setUp(consumer);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) printMessage("received", message);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (System.in.read() >= 0) ;
        consumer.shutdown();
        producer.shutdown(); // with the traces that have not left yet
        Client.print("event", "done");
    }

    private static void consume(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = Client.pushConsumer(args[1], args[3]);
        consumer.setInstanceName(args[4]);
        String wanted = args.length > 5 ? args[5] : "*";
        if (wanted.startsWith("sql:")) consumer.subscribe(args[2], MessageSelector.bySql(wanted.substring(4)));
        else consumer.subscribe(args[2], wanted);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) printMessage("received", message);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Client.print("event", "started");
        Thread watcher = new Thread(() -> {
            String before = "";
            while (true) {
                Set<Integer> queues = new TreeSet<>();
                for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet())
                    if (queue.getTopic().equals(args[2])) queues.add(queue.getQueueId());
                String now = queues.toString();
                if (!now.equals(before)) Client.print("event", "queues", "queues", now);
                before = now;
                try {
                    TimeUnit.MILLISECONDS.sleep(50);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        watcher.setDaemon(true);
        watcher.start();
        BufferedReader commits = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (commits.readLine() != null) consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        // What was received but a moment ago is not yet done with, and a shutdown does not commit it.
        while (inProcess(consumer) > 0) TimeUnit.MILLISECONDS.sleep(5);
        consumer.shutdown();
        Client.print("event", "done");
    }

    private static long inProcess(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values().stream()
            .mapToLong(queue -> queue.getMsgCount().get()).sum();
    }

    private static void fail(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = Client.pushConsumer(args[1], args[3]);
        consumer.setMaxReconsumeTimes(Integer.parseInt(args[5]));
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) printMessage("received", message);
            context.setDelayLevelWhenNextConsume(Integer.parseInt(args[4]));
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        Client.print("event", "started");
        while (System.in.read() >= 0) { }
        consumer.shutdown();
        Client.print("event", "done");
    }

    private static void pop(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = Client.pushConsumer(args[1], args[3]);
        // By name: 4.9 has no such methods.
        consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        consumer.getClass().getMethod("setPopInvisibleTime", long.class).invoke(consumer, 10_000L);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean fails = false;
            for (MessageExt message : messages) {
                int times = message.getReconsumeTimes();
                fails = fails || times == 0 && message.getKeys().endsWith("0");
                boolean popped = message.getProperty("POP_CK") != null;
                Client.print("event", "received", "key", message.getKeys(), "times", times, "popped", popped);
            }
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Client.print("event", "started");
        while (System.in.read() >= 0) { }
        consumer.shutdown();
        Client.print("event", "done");
    }

    private static DefaultMQPushConsumer pushConsumer(String namesrv, String topic, String who) throws Exception {
        String group = who.substring(0, who.indexOf('-'));
        DefaultMQPushConsumer consumer = Client.pushConsumer(namesrv, group);
        consumer.setInstanceName(who);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void every(String[] args) throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String who : new String[] {"broadcast-1", "broadcast-2", "orderly-1", "orderly-2", "retry-1"}) {
            DefaultMQPushConsumer consumer = pushConsumer(args[1], args[2], who);
            // By name: its package is not the same in all releases.
            for (var model : consumer.getMessageModel().getDeclaringClass().getEnumConstants())
                if (who.startsWith("broadcast") && model.name().equals("BROADCASTING")) consumer.setMessageModel(model);
            if (who.startsWith("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    for (MessageExt message : messages) printMessage("received", message, who);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    for (MessageExt message : messages) printMessage("received", message, who);
                    context.setDelayLevelWhenNextConsume(1);
                    return who.equals("retry-1") && messages.get(0).getReconsumeTimes() == 0
                        ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            consumers.add(consumer);
        }
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer("lite");
        lite.setNamesrvAddr(args[1]);
        lite.setPollNameServerInterval(1000);
        lite.setHeartbeatBrokerInterval(1000);
        lite.setInstanceName("lite-1");
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.subscribe(args[2], "*");
        lite.start();
        AtomicBoolean ended = new AtomicBoolean();
        Thread poller = new Thread(() -> {
            while (!ended.get()) for (MessageExt message : lite.poll(200)) printMessage("received", message, "lite-1");
        });
        poller.start();
        Client.print("event", "started");
        while (System.in.read() >= 0) { }
        ended.set(true);
        poller.join();
        lite.shutdown();
        for (DefaultMQPushConsumer consumer : consumers) consumer.shutdown();
        Client.print("event", "done");
    }

    private static void query(String[] args) throws Exception {
        DefaultMQProducer producer = producer(args[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] parts = line.split(" ");
            try {
                long later = System.currentTimeMillis() + 3_600_000;
                for (MessageExt message : producer.queryMessage(args[2], parts[0], 32, 0, later).getMessageList())
                    printMessage("queried", message, parts[0]);
                printMessage("viewed", producer.viewMessage(args[2], parts[1]), parts[0]);
                Client.print("event", "answered", "problem", null);
            } catch (Exception problem) {
                Client.print("event", "answered", "problem", problem);
            }
        }
        producer.shutdown();
    }

    private static void printMessage(String event, MessageExt message) {
        printMessage(event, message, "");
    }

    private static void printMessage(String event, MessageExt message, String who) {
        Client.print("event", event, "who", who, "key", message.getKeys(), "tag", message.getTags(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "phy_offset", message.getCommitLogOffset(), "size", message.getStoreSize(),
            "body", Client.text(message), "times", message.getReconsumeTimes(),
            "born_ms", message.getBornTimestamp(), "stored_ms", message.getStoreTimestamp(), "id", message.getMsgId());
    }

    @SuppressWarnings("deprecation")
    private static void read(String[] args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args[2], Client.hook());
        consumer.setNamesrvAddr(args[1]);
        consumer.setPollNameServerInterval(1000);
        consumer.start();
        BufferedReader topics = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String topic;
        while ((topic = topics.readLine()) != null) {
            try {
                readTopic(consumer, topic);
            } catch (Exception problem) {
                problem.printStackTrace();
                Client.print("event", "unread", "topic", topic, "problem", problem);
            }
        }
        consumer.shutdown();
    }

    @SuppressWarnings("deprecation")
    private static void readTopic(DefaultMQPullConsumer consumer, String topic) throws Exception {
        long total = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            Client.print("event", "queue", "queue", queue.getQueueId(), "min", offset, "max", end);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND)
                    for (MessageExt message : result.getMsgFoundList()) {
                        printMessage("read", message);
                        total++;
                    }
                offset = Math.max(offset, result.getNextBeginOffset());
                if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL) break;
            }
        }
        Client.print("event", "done", "total", total);
    }
}
