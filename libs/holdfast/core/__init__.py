"""The pure kernel: stdlib only, no clock, no randomness, no environment. Inputs and a state in, events out."""
