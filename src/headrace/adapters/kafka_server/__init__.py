"""A Kafka cluster on this machine, for tests and trials: one to some brokers in KRaft mode, as child processes.

`cluster` is the whole, `process` one broker, `settings` its properties, `certificates` the keys of a listener with TLS. No
Kafka client is needed here.
"""
