import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions, timers, filters and requests with the official client: `Kinds namesrv group instance`. What it is told
 * stands in originals/kinds_client.py, which also drives go/kinds.go and node/kinds.js.
 *
 * Written to compile with 4.9 and 5.x alike: what only 5.x has is called by its name.
 */
public final class Kinds {
    private static final Map<String, SendResult> SENT = new ConcurrentHashMap<>();
    private static String namesrv;
    private static String instance;
    private static TransactionMQProducer producer;

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        instance = args[2];
        producer = new TransactionMQProducer(args[1], Client.hook());
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000); // or the first that names a broker could come after 30 s
        producer.setRetryTimesWhenSendFailed(0); // a key stands for one send
        producer.setSendMsgTimeout(20_000); // a busy machine is no failure
        producer.setTransactionListener(new Verdicts());
        producer.start();
        Client.print("event", "started");
        ExecutorService threads = Executors.newCachedThreadPool(); // each request waits for its reply in one
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
                    sent(words[1], producer.send(message(words, 3)), "");
                    break;
                case "transact":
                    transact(words);
                    break;
                case "recall":
                    recall(words[1]);
                    break;
                case "request":
                    Client.print("event", "replied", "key", words[1], "body", Client.text(producer.request(message(words, 4), Long.parseLong(words[3]))));
                    break;
                case "consume":
                    consume(words);
                    break;
                case "reply":
                    reply(words);
                    break;
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        } catch (InvocationTargetException problem) {
            Client.print("event", "failed", "of", words[0], "key", words[1], "error", problem.getCause());
        } catch (Exception problem) {
            Client.print("event", "failed", "of", words[0], "key", words[1], "error", Client.why(problem));
        }
    }

    /** Words from `first` on are properties, NAME=VALUE. */
    private static Message message(String[] words, int first) {
        Message message = new Message(words[2], "", words[1], Client.body(words[1]));
        for (int i = first; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            MessageAccessor.putProperty(message, pair[0], pair[1]);
        }
        return message;
    }

    private static void sent(String key, SendResult result, String state) throws Exception {
        SENT.put(key, result);
        Client.print("event", result.getSendStatus() == SendStatus.SEND_OK ? "sent" : "failed", "of", "send", "key", key, "state", state,
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(), "msg_id", result.getMsgId());
    }

    private static void transact(String[] words) throws Exception {
        Message message = message(words, 5);
        message.putUserProperty("decision", words[4]);
        SendResult result = producer.sendMessageInTransaction(message, words[3]);
        sent(words[1], result, words[3]);
    }

    private static final class Verdicts implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object now) {
            return state((String) now);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Client.print("event", "checked", "key", message.getKeys(), "body", Client.text(message), "topic", message.getTopic(),
                "decision", message.getUserProperty("decision"), "transaction", message.getTransactionId());
            return state(message.getUserProperty("decision"));
        }

        private static LocalTransactionState state(String word) {
            return word.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE
                : word.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private static void recall(String key) throws Exception {
        SendResult result = SENT.get(key);
        Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
        Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, result.getMessageQueue().getTopic(), handle);
        Client.print("event", "recalled", "key", key, "msg_id", id, "is_the_sent", id.equals(result.getMsgId()) ? 1 : 0);
    }

    private static DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = Client.pushConsumer(namesrv, group);
        consumer.setInstanceName(instance);
        return consumer;
    }

    private static void consume(String[] words) throws Exception {
        DefaultMQPushConsumer consumer = consumer(words[2]);
        consumer.subscribe(words[1], words[3].equals("SQL92") ? MessageSelector.bySql(words[4]) : MessageSelector.byTag(words[4]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages)
                Client.print("event", "received", "group", words[2], "key", message.getKeys(), "body", Client.text(message), "tag", message.getTags(),
                    "queue", message.getQueueId(), "offset", message.getQueueOffset(), "times", message.getReconsumeTimes(),
                    "born_ms", message.getBornTimestamp(), "stored_ms", message.getStoreTimestamp());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Client.print("event", "consuming", "group", words[2]);
    }

    private static void reply(String[] words) throws Exception {
        DefaultMQPushConsumer consumer = consumer(words[2]);
        consumer.subscribe(words[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                Client.print("event", "requested", "key", message.getKeys());
                if (message.getUserProperty("mute") != null) continue;
                String key = "reply to " + message.getKeys();
                try {
                    Message reply = MessageUtil.createReplyMessage(message, key.getBytes(StandardCharsets.UTF_8));
                    sent(key, producer.send(reply), "");
                } catch (Exception problem) {
                    Client.print("event", "failed", "of", "reply", "key", key, "error", problem);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Client.print("event", "consuming", "group", words[2]);
    }
}
