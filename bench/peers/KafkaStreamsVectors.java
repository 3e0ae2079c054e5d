import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/** What Kafka Streams makes of records, for tests/kafka_streams: `case NAME` and `TOPIC|KEY|VALUE|TIME` lines in, `KEY|VALUE|TIME` out. */
public class KafkaStreamsVectors {
    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();
    static final Materialized<String, String, KeyValueStore<Bytes, byte[]>> TEXTS = Materialized.with(S, S);

    static Long fold(Long state, Long value) { return (state * 3 + (value == null ? 5 : value)) % 10007; }
    static String pair(Object a, Object b) { return a + "," + b; }

    static KStream<String, Long> stream(StreamsBuilder b, String name) { return b.stream(name, Consumed.with(S, L)); }
    static KTable<String, Long> table(StreamsBuilder b, String name) { return b.table(name, Consumed.with(S, L)); }
    static KGroupedStream<String, Long> grouped(StreamsBuilder b) { return stream(b, "a").groupByKey(Grouped.with(S, L)); }
    static CogroupedKStream<String, Long> cogrouped(StreamsBuilder b) {
        return grouped(b).cogroup((String k, Long v, Long s) -> fold(s, v))
            .cogroup(stream(b, "b").groupByKey(Grouped.with(S, L)), (k, v, s) -> fold(s + 1, v));
    }
    static void windows(KTable<Windowed<String>, Long> t) {
        t.toStream((k, v) -> k.key() + " " + k.window().start() + " " + k.window().end()).to("out", Produced.with(S, L));
    }
    static void plain(KTable<String, Long> t) { t.toStream().to("out", Produced.with(S, L)); }
    static void texts(KStream<String, String> t) { t.to("out", Produced.with(S, S)); }

    static final Duration LENGTH = Duration.ofMillis(10);

    static Duration ms(String text) { return Duration.ofMillis(Long.parseLong(text)); }
    static SlidingWindows sliding(String grace) { return SlidingWindows.ofTimeDifferenceAndGrace(LENGTH, ms(grace)); }
    static TimeWindows tumbling(String grace) { return TimeWindows.ofSizeAndGrace(LENGTH, ms(grace)); }
    static KTable<Windowed<String>, Long> folded(TimeWindowedKStream<String, Long> rows) {
        return rows.aggregate(() -> 1L, (k, v, s) -> fold(s, v), Materialized.with(S, L));
    }

    static void build(String name, StreamsBuilder b) {
        String[] parts = name.split(" ");
        String how = parts.length > 1 ? parts[1] : "";
        switch (parts[0]) {
            case "count" -> plain(grouped(b).count());
            case "count_view" -> plain(grouped(b).count().filter((k, v) -> v % 2 == 0).mapValues(v -> v + 1));
            case "reduce" -> plain(grouped(b).reduce(KafkaStreamsVectors::fold));
            case "aggregate" -> plain(grouped(b)
                .aggregate(() -> 1L, (k, v, s) -> v % 7 == 0 ? null : fold(s, v), Materialized.with(S, L)));
            case "tumbling" -> windows(folded(grouped(b).windowedBy(tumbling(how))));
            case "hopping" -> windows(folded(grouped(b).windowedBy(tumbling(how).advanceBy(Duration.ofMillis(4)))));
            case "tumbling_count" -> windows(grouped(b).windowedBy(tumbling(how)).count());
            case "tumbling_reduce" -> windows(grouped(b).windowedBy(tumbling(how)).reduce(KafkaStreamsVectors::fold));
            case "sliding" -> windows(folded(grouped(b).windowedBy(sliding(how))));
            case "sliding_count" -> windows(grouped(b).windowedBy(sliding(how)).count());
            case "sliding_reduce" -> windows(grouped(b).windowedBy(sliding(how)).reduce(KafkaStreamsVectors::fold));
            case "session" -> windows(grouped(b).windowedBy(SessionWindows.ofInactivityGapAndGrace(LENGTH, ms(how)))
                .aggregate(() -> 1L, (k, v, s) -> fold(s, v), (k, x, y) -> x == 1 ? y : (x * 5 + y) % 10007, Materialized.with(S, L)));
            case "unlimited" -> windows(folded(grouped(b).windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(Long.parseLong(how))))));
            case "session_count" -> windows(grouped(b)
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(LENGTH, ms(how))).count());
            case "cogroup_tumbling" -> windows(cogrouped(b).windowedBy(tumbling(how)).aggregate(() -> 1L, Materialized.with(S, L)));
            case "cogroup" -> plain(cogrouped(b).aggregate(() -> 1L, Materialized.with(S, L)));
            case "group_table" -> plain(table(b, "a").groupBy((k, v) -> KeyValue.pair("g" + v % 2, v), Grouped.with(S, L))
                .aggregate(() -> 0L, (k, v, s) -> s + v, (k, v, s) -> s - v, Materialized.with(S, L)));
            case "table_view" -> plain(table(b, "a").filter((k, v) -> v % 2 == 0).mapValues(v -> v + 1));
            case "stream_table" -> {
                KTable<String, Long> right = table(b, "b");
                KStream<String, Long> left = stream(b, "a");
                texts(how.equals("inner") ? left.join(right, KafkaStreamsVectors::pair) : left.leftJoin(right, KafkaStreamsVectors::pair));
            }
            case "stream_global" -> {
                GlobalKTable<String, Long> right = b.globalTable("b", Consumed.with(S, L));
                KStream<String, Long> left = stream(b, "a");
                KeyValueMapper<String, Long, String> by = (k, v) -> k;
                texts(how.equals("inner") ? left.join(right, by, KafkaStreamsVectors::pair) : left.leftJoin(right, by, KafkaStreamsVectors::pair));
            }
            case "stream_stream" -> {
                KStream<String, Long> left = stream(b, "a"), right = stream(b, "b");
                JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(4), ms(parts[2]));
                StreamJoined<String, Long, Long> with = StreamJoined.with(S, L, L);
                texts(switch (how) {
                    case "inner" -> left.join(right, KafkaStreamsVectors::pair, near, with);
                    case "left" -> left.leftJoin(right, KafkaStreamsVectors::pair, near, with);
                    default -> left.outerJoin(right, KafkaStreamsVectors::pair, near, with);
                });
            }
            case "table_table" -> {
                KTable<String, Long> left = table(b, "a"), right = table(b, "b");
                texts((switch (how) {
                    case "inner" -> left.join(right, KafkaStreamsVectors::pair, TEXTS);
                    case "left" -> left.leftJoin(right, KafkaStreamsVectors::pair, TEXTS);
                    default -> left.outerJoin(right, KafkaStreamsVectors::pair, TEXTS);
                }).toStream());
            }
            case "foreign" -> {
                KTable<String, Long> left = table(b, "a"), right = table(b, "b");
                Function<Long, String> by = v -> "k" + v % 3;
                texts((how.equals("inner") ? left.join(right, by, KafkaStreamsVectors::pair, TEXTS)
                    : left.leftJoin(right, by, KafkaStreamsVectors::pair, TEXTS)).toStream());
            }
            default -> throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            if (!line.startsWith("case ")) continue;
            String name = line.substring(5);
            StreamsBuilder b = new StreamsBuilder();
            build(name, b);
            Properties settings = new Properties();
            settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "vectors");
            settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "broker:9092");
            settings.put(StreamsConfig.STATE_DIR_CONFIG, args[0]);
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
            // unmatched records of joins are given as soon as they can be
            settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
            System.out.println("case " + name);
            boolean isText = name.startsWith("stream_") || name.startsWith("table_table") || name.startsWith("foreign");
            try (TopologyTestDriver driver = new TopologyTestDriver(b.build(), settings)) {
                Map<String, TestInputTopic<String, Long>> topics = new HashMap<>();
                while ((line = in.readLine()) != null && !line.isEmpty()) {
                    String[] p = line.split("\\|");
                    TestInputTopic<String, Long> topic = topics.computeIfAbsent(p[0], n -> driver.createInputTopic(n, new StringSerializer(), new LongSerializer()));
                    topic.pipeInput(new TestRecord<>(p[1].equals("-") ? null : p[1], p[2].equals("-") ? null : Long.valueOf(p[2]), (org.apache.kafka.common.header.Headers) null, Long.valueOf(p[3])));
                }
                TestOutputTopic<String, ?> out = isText
                    ? driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer())
                    : driver.createOutputTopic("out", new StringDeserializer(), new LongDeserializer());
                for (TestRecord<String, ?> r : out.readRecordsToList()) {
                    System.out.println(r.key() + "|" + r.value() + "|" + r.timestamp());
                }
            }
            System.out.println();
        }
    }
}
