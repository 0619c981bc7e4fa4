import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.paimon.flink.action.ActionBase;
import org.apache.paimon.flink.action.ActionFactory;

/**
 * Runs an action of Paimon in a Flink cluster inside this JVM, until it is stopped or fails. The arguments are those of the
 * action. System properties: parallelism, checkpoint.interval (a Flink duration).
 */
public class SyncTopic {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", System.getProperty("checkpoint.interval"));
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("restart-strategy.type", "none");
        settings.setString("taskmanager.memory.managed.size", "512m");
        int parallelism = Integer.getInteger("parallelism");
        ActionBase action = (ActionBase) ActionFactory.createAction(arguments).get();
        action.withStreamExecutionEnvironment(
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings)).run();
    }
}
