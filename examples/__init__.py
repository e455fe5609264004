"""Small real applications on Holdfast, each runnable with one command."""
