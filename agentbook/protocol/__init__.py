"""What engine, worker and book tell each other: dispatches, lifecycle events, run snapshots."""
