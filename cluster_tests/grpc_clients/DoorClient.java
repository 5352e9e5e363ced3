import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The official gRPC client for Java, with its own default of TLS: `DoorClient endpoint topic`. What it is told stands in
 * originals/doors/grpc_client.py, which also drives door_client.py, door_client.go and door_client.js.
 */
public final class DoorClient {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, String> RECALL_HANDLES = new ConcurrentHashMap<>();
    private static final Map<String, Integer> DELIVERIES = new ConcurrentHashMap<>();
    private static final Map<String, SimpleConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, MessageView> HELD = new ConcurrentHashMap<>();
    private static ClientConfiguration configuration;
    private static Producer producer;

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder builder =
            ClientConfiguration.newBuilder().setEndpoints(args[0]).setRequestTimeout(Duration.ofSeconds(10));
        String key = System.getenv("ACCESS_KEY");
        if (key != null)
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(key, System.getenv("SECRET_KEY")));
        configuration = builder.build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(args[1])
            .setMaxAttempts(1) // a key stands for one send
            .setTransactionChecker(DoorClient::check).build();
        tell("event", "started");
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] words = line.split("\t");
            threads.execute(() -> run(words));
        }
        System.exit(0);
    }

    private static void run(String[] words) {
        try {
            switch (words[0]) {
                case "send":
                    sent(words[1], producer.send(message(words, 3)));
                    break;
                case "transact":
                    transact(words);
                    break;
                case "recall":
                    producer.recallMessage(words[2], RECALL_HANDLES.get(words[1]));
                    tell("event", "recalled", "key", words[1]);
                    break;
                case "push":
                    push(words[1], words[2], filter(words));
                    break;
                case "simple":
                    CONSUMERS.put(words[2], PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                        .setConsumerGroup(words[2]).setAwaitDuration(Duration.ofSeconds(6))
                        .setSubscriptionExpressions(Map.of(words[1], filter(words))).build());
                    tell("event", "consuming", "group", words[2]);
                    break;
                case "receive":
                    receive(words[1], Integer.parseInt(words[2]), millis(words[3]));
                    break;
                case "ack":
                    CONSUMERS.get(words[2]).ack(HELD.get(words[2] + "\t" + words[1]));
                    tell("event", "acked", "group", words[2], "key", words[1]);
                    break;
                case "hide":
                    CONSUMERS.get(words[2]).changeInvisibleDuration(HELD.get(words[2] + "\t" + words[1]), millis(words[3]));
                    tell("event", "hidden", "group", words[2], "key", words[1]);
                    break;
                default:
                    throw new IllegalArgumentException("no such command");
            }
        } catch (Throwable problem) {
            tell("event", "failed", "of", words[0], "key", words[1], "error", problem.toString());
        }
    }

    /** Words from `first` on are NAME=VALUE: tag, group and at_ms of the message itself, or properties. */
    private static Message message(String[] words, int first) {
        MessageBuilder made = PROVIDER.newMessageBuilder().setTopic(words[2]).setKeys(words[1])
            .setBody((words[1] + " body").getBytes(StandardCharsets.UTF_8));
        for (int i = first; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            switch (pair[0]) {
                case "tag":
                    made.setTag(pair[1]);
                    break;
                case "group":
                    made.setMessageGroup(pair[1]);
                    break;
                case "at_ms":
                    made.setDeliveryTimestamp(Long.parseLong(pair[1]));
                    break;
                default:
                    made.addProperty(pair[0], pair[1]);
            }
        }
        return made.build();
    }

    private static void sent(String key, SendReceipt receipt) {
        String handle = receipt.getRecallHandle();
        if (handle != null)
            RECALL_HANDLES.put(key, handle);
        tell("event", "sent", "key", key, "id", receipt.getMessageId());
    }

    private static void transact(String[] words) throws Exception {
        Transaction transaction = producer.beginTransaction();
        sent(words[1], producer.send(message(words, 4), transaction));
        if (words[3].equals("commit"))
            transaction.commit();
        else if (words[3].equals("rollback"))
            transaction.rollback();
        tell("event", "ended", "key", words[1], "state", words[3]);
    }

    private static TransactionResolution check(MessageView message) {
        String decision = message.getProperties().get("decision");
        tell("event", "checked", "key", key(message), "body", text(message), "topic", message.getTopic(), "decision", decision);
        return decision.equals("commit") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
    }

    private static FilterExpression filter(String[] words) {
        return new FilterExpression(words[4], words[3].equals("SQL92") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG);
    }

    private static void push(String topic, String group, FilterExpression filter) throws Exception {
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, filter)).setMessageListener(message -> {
                int deliveries = DELIVERIES.merge(group + "\t" + key(message), 1, Integer::sum);
                boolean fails = deliveries <= Integer.parseInt(message.getProperties().getOrDefault("fails", "0"));
                received(group, message, fails);
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        tell("event", "consuming", "group", group);
    }

    private static void receive(String group, int count, Duration invisible) throws Exception {
        List<MessageView> messages = CONSUMERS.get(group).receive(count, invisible);
        for (MessageView message : messages) {
            HELD.put(group + "\t" + key(message), message);
            received(group, message, false);
        }
        tell("event", "polled", "group", group, "count", messages.size());
    }

    private static void received(String group, MessageView message, boolean fails) {
        tell("event", "received", "group", group, "key", key(message), "body", text(message), "id", message.getMessageId(),
            "tag", message.getTag().orElse(""), "message_group", message.getMessageGroup().orElse(""),
            "attempt", message.getDeliveryAttempt(), "topic", message.getTopic(), "fails", fails);
    }

    private static Duration millis(String number) {
        return Duration.ofMillis(Long.parseLong(number));
    }

    private static String key(MessageView message) {
        return message.getKeys().iterator().next();
    }

    private static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody().duplicate()).toString();
    }

    /** A JSON object on a line of standard output; `pairs` are names and values. */
    private static synchronized void tell(Object... pairs) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < pairs.length; i++) {
            line.append(i == 0 ? '{' : i % 2 == 0 ? ',' : ':');
            if (pairs[i] instanceof Number || pairs[i] instanceof Boolean) {
                line.append(pairs[i]);
                continue;
            }
            line.append('"');
            for (char c : pairs[i].toString().toCharArray())
                line.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
            line.append('"');
        }
        OUT.println(line.append('}'));
        OUT.flush();
    }
}
