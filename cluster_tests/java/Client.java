import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** What the programs have in common: how a consumer is set up, and the JSON that they write. */
final class Client {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);

    static DefaultMQPushConsumer pushConsumer(String namesrv, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        setUp(consumer);
        return consumer;
    }

    /** Signs requests with ACCESS_KEY and SECRET_KEY of the environment, if they are set. The class is looked for by its
     *  name: it is in the jar of 4.9's rocketmq-acl, and of 5.x in that of the client's remoting. */
    static RPCHook hook() {
        String key = System.getenv("ACCESS_KEY");
        if (key == null) return null;
        String room = "org.apache.rocketmq.acl.common.";
        try {
            Class<?> credentials = Class.forName(room + "SessionCredentials");
            return (RPCHook) Class.forName(room + "AclClientRPCHook").getConstructor(credentials).newInstance(
                credentials.getConstructor(String.class, String.class).newInstance(key, System.getenv("SECRET_KEY")));
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** With the broker's words, which a producer that has tried again puts into the cause. */
    static String why(Throwable problem) {
        return problem.getCause() == null ? problem.toString() : problem + ", for " + problem.getCause();
    }

    static void setUp(DefaultMQPushConsumer consumer) {
        consumer.setPollNameServerInterval(1000);
        // start() fails if it has no routes by then. On a busy machine a JVM needs more than 3 s for its first TLS connection.
        consumer.setMqClientApiTimeout(30_000);
        // A rebalance makes its subscription newer, and the heartbeat that says so to the broker is left out when another
        // thread sends one. Until the next, after 30 s unless told, every pull is refused as newer than what is known.
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }

    static byte[] body(String key) {
        return ("body of " + key).getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** A JSON object on a line of standard output; `pairs` are names and values. */
    static synchronized void print(Object... pairs) {
        OUT.println(object(pairs));
        OUT.flush();
    }

    static String object(Object... pairs) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < pairs.length; i += 2) {
            append(line.append(i == 0 ? '{' : ','), pairs[i]);
            append(line.append(':'), pairs[i + 1]);
        }
        return line.append('}').toString();
    }

    private static void append(StringBuilder line, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            line.append(value);
        } else if (value instanceof List) {
            String before = "[";
            for (Object item : (List<?>) value) {
                append(line.append(before), item);
                before = ",";
            }
            line.append(before.equals("[") ? "[]" : "]");
        } else {
            line.append('"');
            for (char c : value.toString().toCharArray())
                line.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
            line.append('"');
        }
    }
}
