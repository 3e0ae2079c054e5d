import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The peer of bench/cluster.py and bench/groups.py on Kafka Streams, one of several instances: SERVERS INPUT OUTPUT
 * APPLICATION FOLDER SESSION_MS [NAME].
 *
 * A durable keyed count, exactly once (exactly_once_v2), one thread, RocksDB with its changelog topic, each update given on.
 * With a NAME what is given on is text: the name, the process, the count. It runs until it is killed; "running" is printed
 * once it has its tasks.
 */
public final class KafkaStreamsMember {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<Bytes, Long> counts = builder.stream(args[1], Consumed.with(Serdes.Bytes(), Serdes.Bytes()))
                .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.Bytes()))
                .count(Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("counts").withCachingDisabled())
                .toStream();
        if (args.length > 6) {
            String who = args[6] + " " + ProcessHandle.current().pid() + " ";
            counts.mapValues(count -> who + count).to(args[2], Produced.with(Serdes.Bytes(), Serdes.String()));
        } else {
            counts.to(args[2], Produced.with(Serdes.Bytes(), Serdes.Long()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(args));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
        new CountDownLatch(1).await();
    }

    private static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put("session.timeout.ms", Integer.parseInt(args[5]));
        settings.put("heartbeat.interval.ms", Integer.parseInt(args[5]) / 3);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }
}
