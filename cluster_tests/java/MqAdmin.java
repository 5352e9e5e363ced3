import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's own mqadmin, one sub-command per line of standard input (arguments separated by tabs), so that a test pays for
 * one JVM instead of one per sub-command. After each of them a line END is printed.
 */
public final class MqAdmin {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(out);
        System.setErr(out); // where sub-commands report their failures
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            try {
                MQAdminStartup.main0(line.split("\t"), null);
            } catch (Throwable problem) {
                problem.printStackTrace(out);
            }
            out.println();
            out.println("END");
        }
        System.exit(0);
    }
}
