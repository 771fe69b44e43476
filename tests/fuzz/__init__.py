"""Inputs that nobody would write: drawn, mutated, and held against the original program."""
