import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the broker's own SQL92 filter says. Lines in: "P name=value&..." adds a message's properties, "E expression" asks; all
 * are URL-encoded. One line out for each expression: REFUSED, or true, false, null, error for each message.
 */
public class SqlFilters {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        List<EvaluationContext> messages = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.startsWith("P ")) {
                messages.add(message(line.substring(2)));
            } else {
                out.println(answer(URLDecoder.decode(line.substring(2), "UTF-8"), messages));
            }
        }
        out.flush();
    }

    private static EvaluationContext message(String encoded) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        for (String pair : encoded.split("&")) {
            String[] parts = pair.split("=", 2);
            properties.put(URLDecoder.decode(parts[0], "UTF-8"), URLDecoder.decode(parts[1], "UTF-8"));
        }
        return new EvaluationContext() {
            public Object get(String name) {
                return properties.get(name);
            }

            public Map<String, Object> keyValues() {
                return properties;
            }
        };
    }

    private static String answer(String text, List<EvaluationContext> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Throwable e) {
            return "REFUSED";
        }
        StringBuilder answers = new StringBuilder();
        for (EvaluationContext message : messages) {
            String answer;
            try {
                answer = String.valueOf(expression.evaluate(message));
            } catch (Throwable e) {
                answer = "error";
            }
            answers.append(answers.length() == 0 ? "" : " ").append(answer);
        }
        return answers.toString();
    }
}
