"""Moves runs: pure transitions, and the effects that a saved snapshot asks for."""
