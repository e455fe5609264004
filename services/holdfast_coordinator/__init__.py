"""The coordinator: the only writer of workflow events. It turns inputs from Kafka into committed decisions."""
