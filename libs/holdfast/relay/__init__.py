"""From the outbox to Kafka: what the relay service and a coordinator with a hosted relay have in common."""
