"""Postgres and Kafka on one machine, for `holdfast dev`, tests and benchmarks.

Both are the real servers: found on the machine, or fetched as wheels, jars or containers. `stack.Stack` starts and
stops them; `probe` says what it would choose and why. Nothing here is used in production, and nothing else in
Holdfast knows how its servers were started.
"""
