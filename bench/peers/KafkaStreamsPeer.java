import java.math.BigInteger;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The peer of bench/kafka.py and of bench/operators.py on Kafka Streams: SERVERS INPUT OUTPUT APPLICATION FOLDER count|map|windows|join|foreign
 * COMMIT_MS. INPUT: one topic, or several with commas between them.
 *
 * Exactly once (exactly_once_v2), two threads, RocksDB with its changelog topic. Prints the seconds from the first record
 * that it took up to the commit of the last one, those of its own topics included: neither the JVM's start nor the group's joining counts.
 */
public final class KafkaStreamsPeer {
    private static final long ENDS_MS_MAX = 600_000;

    public static void main(String[] args) throws Exception {
        String servers = args[0], input = args[1], application = args[3];
        AtomicLong first = new AtomicLong();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers));
                KafkaStreams streams = new KafkaStreams(topology(input, args[2], args[5], first).build(), settings(args))) {
            Map<TopicPartition, Long> ends = ends(admin, Set.of(input.split(",")));
            streams.start();
            long deadline = System.currentTimeMillis() + ENDS_MS_MAX;
            while (!committed(admin, application, ends) || !committed(admin, application, ownEnds(admin, application))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not at the end of " + input + " after " + ENDS_MS_MAX + " ms");
                }
                Thread.sleep(20);
            }
            System.out.println("seconds " + (System.nanoTime() - first.get()) / 1e9);
            streams.close(Duration.ofSeconds(20));
        }
    }

    private static StreamsBuilder topology(String input, String output, String what, AtomicLong first) {
        StreamsBuilder builder = new StreamsBuilder();
        String[] inputs = input.split(",");
        KStream<Bytes, Bytes> records = builder.stream(inputs[0], Consumed.with(Serdes.Bytes(), Serdes.Bytes()));
        records = records.peek((key, value) -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
        });
        if (what.equals("windows")) {
            records.mapValues(value -> new BigInteger(value.get()).longValue())
                    .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.Long()))
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(10)))
                    .reduce(Long::sum, Materialized.as("sums"))
                    .toStream()
                    .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(Bytes.class, 60_000), Serdes.Long()));
        } else if (what.equals("join")) {
            KStream<Bytes, Bytes> others = builder.stream(inputs[1], Consumed.with(Serdes.Bytes(), Serdes.Bytes()));
            records.join(others, KafkaStreamsPeer::both,
                            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(1)),
                            StreamJoined.with(Serdes.Bytes(), Serdes.Bytes(), Serdes.Bytes()))
                    .to(output, Produced.with(Serdes.Bytes(), Serdes.Bytes()));
        } else if (what.equals("foreign")) {
            KTable<Bytes, Bytes> customers = records.toTable(Materialized.with(Serdes.Bytes(), Serdes.Bytes()));
            KTable<Bytes, Bytes> orders = builder.table(inputs[1], Consumed.with(Serdes.Bytes(), Serdes.Bytes()));
            orders.join(customers, value -> Bytes.wrap(Arrays.copyOf(value.get(), 6)), KafkaStreamsPeer::both,
                            Materialized.with(Serdes.Bytes(), Serdes.Bytes()))
                    .toStream()
                    .to(output, Produced.with(Serdes.Bytes(), Serdes.Bytes()));
        } else if (what.equals("map")) {
            records.mapValues(KafkaStreamsPeer::marked).to(output, Produced.with(Serdes.Bytes(), Serdes.Bytes()));
        } else {
            records.groupByKey(Grouped.with(Serdes.Bytes(), Serdes.Bytes()))
                    .count(Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
                    .toStream()
                    .to(output, Produced.with(Serdes.Bytes(), Serdes.Long()));
        }
        return builder;
    }

    private static Bytes both(Bytes left, Bytes right) {
        byte[] both = Arrays.copyOf(left.get(), left.get().length + 1 + right.get().length);
        both[left.get().length] = ' ';
        System.arraycopy(right.get(), 0, both, left.get().length + 1, right.get().length);
        return Bytes.wrap(both);
    }

    private static Bytes marked(Bytes value) {
        byte[] marked = Arrays.copyOf(value.get(), value.get().length + 1);
        marked[marked.length - 1] = '!';
        return Bytes.wrap(marked);
    }

    private static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Integer.parseInt(args[6]));
        // so much that no update is written out before a commit: fewer of them reach the changelog and the output
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 128L * 1024 * 1024);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.Bytes().getClass());
        settings.put("auto.offset.reset", "earliest");
        settings.put("compression.type", "lz4");
        settings.put("producer.transaction.timeout.ms", 60_000);
        return settings;
    }

    private static Map<TopicPartition, Long> ownEnds(Admin admin, String application) throws Exception {
        Set<String> own = new HashSet<>(admin.listTopics().names().get());
        own.removeIf(name -> !name.startsWith(application + "-") || !name.endsWith("-topic"));
        return own.isEmpty() ? Map.of() : ends(admin, own);
    }

    private static Map<TopicPartition, Long> ends(Admin admin, Set<String> topics) throws Exception {
        Set<TopicPartition> partitions = new HashSet<>();
        admin.describeTopics(topics).allTopicNames().get().forEach((name, topic) -> {
            for (int partition = 0; partition < topic.partitions().size(); partition++) {
                partitions.add(new TopicPartition(name, partition));
            }
        });
        return admin.listOffsets(partitions.stream().collect(Collectors.toMap(p -> p, p -> OffsetSpec.latest()))).all().get()
                .entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, e -> e.getValue().offset()));
    }

    private static boolean committed(Admin admin, String application, Map<TopicPartition, Long> ends) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found =
                admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
        return ends.entrySet().stream().allMatch(e -> {
            OffsetAndMetadata position = found.get(e.getKey());
            return e.getValue() == 0 || position != null && position.offset() >= e.getValue();
        });
    }
}
