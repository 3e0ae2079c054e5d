"""A Kafka cluster on this machine, for tests and trials: one to some brokers in KRaft mode, as child processes.

`cluster` is the whole, `process` one broker's life, `settings` a broker's properties, `network` whether it answers and
which ports are free, `certificates` the keys of a listener with TLS. The jars come as an argument; no Kafka client is needed
here.
"""
