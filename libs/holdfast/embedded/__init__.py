"""Postgres and Kafka on one machine, for `holdfast dev`, tests and benchmarks."""
