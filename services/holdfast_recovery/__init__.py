"""Recovery: one loop per kind of lost or overdue thing. It writes no events, it only sends inputs."""
