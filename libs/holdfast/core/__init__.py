"""The pure kernel: what a workflow is, what may happen to it, and what follows.

Nothing here does I/O, reads a clock, draws a random number or logs. Time and ids arrive as data. The shell (the
coordinator) reads `decide(state, input, now)`, folds the events with `evolve`, and commits what `project` derives.
"""
