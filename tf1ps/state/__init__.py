"""What outlives a session: containers, control records, heartbeats, the run."""
