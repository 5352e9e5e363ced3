import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
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
        Thread main = Thread.currentThread();
        Thread waker = new Thread(() -> {
            while (true) {
                wakeWhomAShutdownAwaits(main);
                try {
                    TimeUnit.MILLISECONDS.sleep(50);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
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

    /** At its end every second sub-command joins a thread that looks whether it is to stop every 3 s only. */
    private static void wakeWhomAShutdownAwaits(Thread main) {
        boolean isShutdown = Arrays.stream(main.getStackTrace())
            .anyMatch(frame -> frame.getClassName().endsWith(".NettyRemotingClient") && frame.getMethodName().equals("shutdown"));
        if (!isShutdown) return;
        Thread[] threads = new Thread[Thread.activeCount() + 16];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++)
            if (threads[i].getName().startsWith("NettyEventExecutor")) threads[i].interrupt();
    }
}
