"""What an operator wants to know of recovery."""

from prometheus_client import Counter, Gauge

timers_sent = Counter("holdfast_recovery_timers_sent_total", "Timers that were due and whose tick Kafka has")
ticks_resent = Counter("holdfast_recovery_ticks_resent_total", "Ticks sent again because nobody answered the first")
leases_expired = Counter(
    "holdfast_recovery_leases_expired_total", "Ticks for leases and attempts that ran out of time", ["kind"]
)
leases_spared = Counter(
    "holdfast_recovery_leases_spared_total", "Leases past due that were kept because Kafka has not answered steadily"
)
reports_behind = Gauge(
    "holdfast_recovery_partitions_behind", "Partitions whose due leases wait until their reports are processed"
)
dispatches_lost = Counter("holdfast_recovery_dispatches_lost_total", "Dispatches that no worker will ever be given")
dispatches_waiting = Gauge(
    "holdfast_recovery_dispatches_waiting", "Tasks queued for longer than the patience of recovery, as of the last look"
)
backlog_indexed = Gauge("holdfast_recovery_backlog_indexed", "Unfinished dispatches known from the task topics")
records_trimmed = Counter("holdfast_recovery_records_trimmed_total", "Task records deleted below the committed offset")
