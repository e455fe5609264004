"""The pytest kit and the seeded simulation."""
