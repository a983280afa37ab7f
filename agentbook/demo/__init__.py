"""`agentbook demo`: a billing agent whose process is killed right after it refunded."""
