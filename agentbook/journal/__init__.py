"""The journal: records, append, open, replay, fold and check (JOURNAL.md)."""
