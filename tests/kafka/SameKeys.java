import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes keys of many lengths to a topic, each to the partition that Kafka's own client chooses. Arguments: servers, topic. */
public class SameKeys {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        Random random = new Random(17);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < 500; number++) {
                byte[] key = number % 2 == 0 ? ("key-" + number).getBytes("UTF-8") : new byte[number % 67];
                if (number % 2 == 1) {
                    random.nextBytes(key);
                }
                producer.send(new ProducerRecord<>(arguments[1], key, ByteBuffer.allocate(4).putInt(number).array()));
            }
        }
    }
}
