"""The serdes whose schema is written in a language of its own: Avro, Protobuf and JSON Schema, with a registry or
without. Their libraries are optional, and imported when a value is first read or written."""
