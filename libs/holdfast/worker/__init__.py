"""What authors of activities import."""
