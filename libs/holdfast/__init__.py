"""Holdfast: durable workflows and sagas on Kafka and Postgres."""
