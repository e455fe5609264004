"""The coordinator: the only writer of workflow events.

It reads commands, reports and ticks, decides them on cached states, and commits everything that follows in one
transaction per batch. `ownership` knows which partitions are ours, `intake` turns records into inputs, `batch` decides
them, `pipeline` commits one batch while the next is being decided, `parking` keeps one bad instance from stopping the
others.
"""
