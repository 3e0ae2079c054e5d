"""A Kafka cluster on this machine, for tests and trials: brokers in KRaft mode, as child processes, without a Kafka client."""
