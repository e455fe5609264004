"""What the coordinator counts."""

from prometheus_client import Counter, Gauge, Histogram

events = Counter("holdfast_coordinator_events", "Events that were committed")
turned = Counter("holdfast_coordinator_turned", "Records that were not decided here, by reason", ["reason"])
commits = Counter("holdfast_coordinator_commits", "Commits by outcome", ["outcome"])
commit_seconds = Histogram("holdfast_coordinator_commit_seconds", "Time from sending a commit to its answer")
batch_inputs = Histogram(
    "holdfast_coordinator_batch_inputs", "Records per commit", buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500)
)
decisions_failed = Counter("holdfast_coordinator_decisions_failed", "Decisions that raised; their inputs are parked")
parked = Gauge("holdfast_coordinator_parked_instances", "Instances that wait in parked_inputs, on partitions held here")
cached = Gauge("holdfast_coordinator_cached_states", "States in memory")
owned = Gauge("holdfast_coordinator_partitions", "Partitions held here")
commands = Counter("holdfast_coordinator_commands", "Commands by outcome", ["outcome"])
rejections = Counter("holdfast_coordinator_rejected_reports", "Reports that did not count, beyond the recorded first")
