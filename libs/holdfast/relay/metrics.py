"""What an operator wants to know of the way out."""

from prometheus_client import Counter, Gauge

rows_published = Counter("holdfast_outbox_rows_published_total", "Outbox rows whose messages are all in Kafka")
messages_parked = Counter(
    "holdfast_outbox_messages_parked_total", "Messages that Kafka will never take, now in outbox_parked", ["topic"]
)
producers_replaced = Counter(
    "holdfast_outbox_producers_replaced_total", "Times that publishing started over with a new producer"
)
rows_corrupt = Counter("holdfast_outbox_rows_corrupt_total", "Outbox rows whose frame this version cannot read")
leases_lost = Counter("holdfast_outbox_leases_lost_total", "Publisher's leases that somebody else took from us")
partitions_held = Gauge("holdfast_outbox_partitions", "Partitions whose outbox this process publishes")
in_flight_bytes = Gauge("holdfast_outbox_in_flight_bytes", "Bytes handed to Kafka and not yet reported")
outbox_rows = Gauge("holdfast_outbox_rows", "Outbox rows that are not in Kafka yet, of all partitions")
outbox_age_seconds = Gauge("holdfast_outbox_age_seconds", "How long the oldest unpublished outbox row has waited")
outbox_parked = Gauge("holdfast_outbox_parked", "Messages in outbox_parked that wait for an operator")
