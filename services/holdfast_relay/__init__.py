"""The relay: publishes committed outbox rows to Kafka, and never decodes a payload."""
