"""What outlives a session: containers, queues, control records, heartbeats, the run."""
