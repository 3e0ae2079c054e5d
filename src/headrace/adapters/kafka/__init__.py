"""Kafka as a system: streams are topics, an application's small values are records of a compacted topic.

All that imports confluent_kafka is in this package. "Topic" is Kafka's word for a stream.
"""
