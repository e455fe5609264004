"""Bytes to core types and back: the only place that knows Avro and CloudEvents."""
