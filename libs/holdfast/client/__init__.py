"""Start, signal and query workflows."""
