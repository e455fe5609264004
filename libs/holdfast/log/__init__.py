"""Kafka: one protocol, confluent-kafka and its in-memory twin."""
