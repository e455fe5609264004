"""Kafka behind one small protocol, with an in-memory twin."""
