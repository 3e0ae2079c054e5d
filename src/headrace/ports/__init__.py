"""The protocols between the runtime and the adapters. A port is a contract: what is atomic, what is raised, what is
unchanged on failure. All implementations of one pass one suite of tests (`tests/contracts`).

How a round is committed is the adapter's: on the embedded log by the driver, all containers in one transaction; on Kafka
by each container's worker, in a transaction of its own. The runtime goes one way through both, see `ProcessorStore`.

Arrow tables are pyarrow's; this module only names them. The row shape of records on disk and in flight is
`codec.record_batches.RECORD_SCHEMA`: key binary, value binary, timestamp_us int64, headers list<struct<name string, value
binary>>."""
