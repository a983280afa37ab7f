"""Agents that tests run in child processes, and the ledger in which they count what really started."""
