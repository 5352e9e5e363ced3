import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * The official client under faults: what it does goes to a history (faults/history.py), until standard input ends.
 *
 * <pre>
 * send    namesrv topic history producer threads per_second body_size poll_ms
 * consume namesrv topic history group consumer poll_ms
 * </pre>
 *
 * poll_ms: how often the client asks the NameServer for routes, 30000 unless told. All else is as the client has it.
 */
public final class Recorder {
    private static final Pattern OURS = Pattern.compile("([\\w.-]+)/(\\d{1,12}) ");

    public static void main(String[] args) {
        int status = 0;
        try (History history = new History(Path.of(args[3]))) {
            if (args[0].equals("send")) {
                send(args, history);
            } else if (args[0].equals("consume")) {
                consume(args, history);
            } else {
                throw new IllegalArgumentException(args[0]);
            }
            Client.print("event", "done");
        } catch (Exception problem) {
            problem.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    /** A line leaves with one write, under a lock that its time is taken under, so that times never fall. */
    private static final class History implements AutoCloseable {
        private final FileOutputStream file;

        History(Path path) throws IOException {
            Files.write(path, new byte[0], StandardOpenOption.CREATE_NEW);
            file = new FileOutputStream(path.toFile(), true);
        }

        /** Returns its time. On Linux nanoTime is CLOCK_MONOTONIC, as Python's monotonic_ns is. */
        synchronized long note(String kind, Object... pairs) {
            long atNs = System.nanoTime();
            List<Object> all = new ArrayList<>(List.of("kind", kind, "at_ns", atNs));
            all.addAll(Arrays.asList(pairs));
            try {
                file.write((Client.object(all.toArray()) + "\n").getBytes(StandardCharsets.UTF_8));
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
            }
            return atNs;
        }

        @Override
        public synchronized void close() throws IOException {
            file.close();
        }
    }

    // ---- producer

    /** What one call of send() has done so far; calls of the client's hooks come in the thread that sends. */
    private static final class Attempts implements SendMessageHook {
        private final ThreadLocal<int[]> left = ThreadLocal.withInitial(() -> new int[1]);

        void begin() {
            left.get()[0] = 0;
        }

        /** Those that may have left the process. */
        int count() {
            return left.get()[0];
        }

        @Override
        public String hookName() {
            return "attempts";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            left.get()[0]++;
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            // Of all errors this alone says that there was no connection to write to. A broker that says no may have
            // appended before: DLedger's answers when a leader steps down do not tell.
            if (context.getException() instanceof RemotingConnectException) left.get()[0]--;
        }
    }

    private static void send(String[] args, History history) throws Exception {
        String topic = args[2];
        String name = args[4];
        int threadCount = Integer.parseInt(args[5]);
        long pauseNs = threadCount * 1_000_000_000L / Long.parseLong(args[6]);
        int bodySize = Integer.parseInt(args[7]);
        DefaultMQProducer producer = new DefaultMQProducer("recorder_" + name);
        producer.setNamesrvAddr(args[1]);
        producer.setPollNameServerInterval(Integer.parseInt(args[8]));
        Attempts attempts = new Attempts();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(attempts);
        producer.start();
        Client.print("event", "started");
        AtomicBoolean ended = new AtomicBoolean();
        AtomicLong sequences = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < threadCount; number++) {
            Thread thread = new Thread(() -> {
                long nextNs = System.nanoTime();
                while (!ended.get()) {
                    sendOne(producer, attempts, history, topic, name, sequences.getAndIncrement(), bodySize);
                    // What an outage has held up is not made up for.
                    nextNs = Math.max(nextNs + pauseNs, System.nanoTime());
                    pause(nextNs - System.nanoTime());
                }
            });
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) { }
        ended.set(true);
        for (Thread thread : threads) thread.join();
        producer.shutdown();
    }

    private static void pause(long ns) {
        try {
            TimeUnit.NANOSECONDS.sleep(ns);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void sendOne(DefaultMQProducer producer, Attempts attempts, History history, String topic,
                                String name, long sequence, int bodySize) {
        Message message = new Message(topic, body(name, sequence, bodySize));
        attempts.begin();
        long begunNs = history.note("send_begun", "producer", name, "sequence", sequence, "topic", topic);
        try {
            SendResult result = producer.send(message);
            // What is no SEND_OK is appended, and nobody knows whether by a majority.
            boolean ok = result.getSendStatus() == SendStatus.SEND_OK;
            String offsetId = result.getOffsetMsgId();
            history.note("send", "begun_ns", begunNs, "producer", name, "sequence", sequence, "topic", topic,
                "outcome", ok ? "ok" : "unknown", "broker", result.getMessageQueue().getBrokerName(),
                "queue_id", result.getMessageQueue().getQueueId(), "queue_offset", ok ? result.getQueueOffset() : -1,
                "phy_offset", ok ? Long.parseLong(offsetId.substring(offsetId.length() - 16), 16) : -1,
                "msg_id", result.getMsgId(), "attempts", attempts.count(),
                "reason", ok ? "" : result.getSendStatus().name());
        } catch (Exception problem) {
            history.note("send", "begun_ns", begunNs, "producer", name, "sequence", sequence, "topic", topic,
                "outcome", attempts.count() == 0 ? "fail" : "unknown", "attempts", Math.max(1, attempts.count()),
                "reason", String.valueOf(problem).split("\n")[0]);
        }
    }

    private static byte[] body(String name, long sequence, int size) {
        byte[] head = (name + "/" + sequence + " ").getBytes(StandardCharsets.UTF_8);
        byte[] body = Arrays.copyOf(head, Math.max(size, head.length));
        Arrays.fill(body, head.length, body.length, (byte) '.');
        return body;
    }

    // ---- consumer

    /** Begins, commits and what the broker says of them. The client asks its store here alone before it reads a queue. */
    private static final class NotedOffsets extends RemoteBrokerOffsetStore {
        private final History history;
        private final String group;
        private final String consumer;

        NotedOffsets(MQClientInstance client, History history, String group, String consumer) {
            super(client, group);
            this.history = history;
            this.group = group;
            this.consumer = consumer;
        }

        @Override
        public long readOffset(MessageQueue queue, ReadOffsetType type) {
            long begunNs = System.nanoTime();
            long offset = super.readOffset(queue, type);
            // Below -1: it could not be asked, and the client asks again.
            if (type == ReadOffsetType.READ_FROM_STORE && offset >= -1 && !ofRetries(queue)) {
                noteAt(queue, "committed", "begun_ns", begunNs, "offset", offset);
                noteAt(queue, "assigned", "offset", Math.max(offset, 0));
            }
            return offset;
        }

        @Override
        public void updateConsumeOffsetToBroker(MessageQueue queue, long offset, boolean oneway)
            throws RemotingException, MQBrokerException, InterruptedException, MQClientException {
            if (ofRetries(queue)) {
                super.updateConsumeOffsetToBroker(queue, offset, oneway);
                return;
            }
            long begunNs = noteAt(queue, "commit_begun", "offset", offset);
            String outcome = "unknown";
            try {
                super.updateConsumeOffsetToBroker(queue, offset, oneway);
                if (!oneway) outcome = "ok";
            } finally {
                noteAt(queue, "commit", "begun_ns", begunNs, "offset", offset, "outcome", outcome);
            }
        }

        /** The queue that the client adds to each group. */
        private static boolean ofRetries(MessageQueue queue) {
            return queue.getTopic().startsWith("%RETRY%");
        }

        private long noteAt(MessageQueue queue, String kind, Object... pairs) {
            return Recorder.noteAt(history, queue, group, consumer, kind, pairs);
        }
    }

    private static long noteAt(History history, MessageQueue queue, String group, String consumer, String kind,
                               Object... pairs) {
        List<Object> all = new ArrayList<>(List.of("group", group, "consumer", consumer, "broker",
            queue.getBrokerName(), "topic", queue.getTopic(), "queue_id", queue.getQueueId()));
        all.addAll(Arrays.asList(pairs));
        return history.note(kind, all.toArray());
    }

    private static void consume(String[] args, History history) throws Exception {
        String group = args[4];
        String name = args[5];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(args[1]);
        consumer.setInstanceName(name);
        consumer.setPollNameServerInterval(Integer.parseInt(args[6]));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (!NotedOffsets.ofRetries(context.getMessageQueue()))
                notePoll(history, context.getMessageQueue(), group, name, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        // By its instance name start() finds the client that is made here.
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(consumer);
        consumer.setOffsetStore(new NotedOffsets(client, history, group, name));
        consumer.start();
        Client.print("event", "started");
        while (System.in.read() >= 0) { }
        consumer.shutdown();
    }

    private static void notePoll(History history, MessageQueue queue, String group, String consumer,
                                 List<MessageExt> messages) {
        List<Object> delivered = new ArrayList<>();
        for (MessageExt message : messages) {
            Matcher said = OURS.matcher(new String(message.getBody(), StandardCharsets.UTF_8));
            boolean ours = said.lookingAt();
            delivered.add(List.of(message.getQueueOffset(), ours ? said.group(1) : "",
                ours ? Long.parseLong(said.group(2)) : -1L, message.getMsgId()));
        }
        long first = messages.get(0).getQueueOffset();
        long last = messages.get(messages.size() - 1).getQueueOffset();
        noteAt(history, queue, group, consumer, "poll", "offset", first, "next_offset", last + 1,
            "messages", delivered, "in_order", false);
    }
}
