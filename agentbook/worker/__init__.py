"""The worker: pull dispatches, hold runs, drive the agent loop (ENGINE.md)."""
