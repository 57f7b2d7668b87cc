"""Who is in the job: the description of the cluster, its server, and what a session is told."""
