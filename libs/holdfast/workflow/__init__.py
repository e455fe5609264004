"""What authors of code-first workflows and deciders import."""
