"""The event store: one protocol, Postgres and its in-memory twin."""
