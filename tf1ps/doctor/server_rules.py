"""Rules of servers: how they start, and how they end."""

from __future__ import annotations

from tf1ps.doctor.findings import TRAP, Rule

RULES = (
  Rule("server-join-never-ends", TRAP,
       "`join` waits until you kill the process: the ps never ends, and ignores SIGINT",
       "Let the ps end with its job, as the Server of tf1ps does.",
       "docs/run.md", True,
       lambda program: program.method_calls("tf.train.Server", "join")),
)
