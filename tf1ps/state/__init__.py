"""Keeps state on servers between sessions: containers, queues and barriers.

It also holds a run's own records: its id, its status, and the heartbeats of its tasks.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "barrier": ["Barrier", "BarrierTimeout"],
  "containers": [
    "ContainerError", "check_container_name", "clear_container", "container_of_job",
    "container_scope"],
  "control": [
    "CLUSTER_RECORD", "ControlError", "ControlRecord", "ControlTable", "PROGRAM_RECORD",
    "table_for"],
  "done_queues": ["DoneQueues", "DoneTimeout"],
  "ending": ["wait_for_end"],
  "guard": ["GUARD_MISMATCH", "Guard", "Guarded", "Label", "QUEUE_KIND", "announce"],
  "heartbeat": [
    "Heartbeat", "MEMBER_DONE", "MEMBER_FAILED", "MEMBER_SERVING", "MEMBER_STARTING",
    "MEMBER_TRAINING", "Member", "containers_of", "latest_heartbeat", "members_of"],
  "peek": ["Peek", "QueueSeen"],
  "pinning": ["shared_placement"],
  "queue_call": ["QueueCall", "Waiting", "waiting_calls"],
  "queue_errors": [
    "QueueCancelled", "QueueEmpty", "QueueEnded", "QueueError", "QueueFull", "QueueMismatch",
    "QueueReset", "QueueTimeout", "QueueUnanswered"],
  "queues": [
    "FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "PutElements", "RandomShuffleQueue",
    "TakenElements"],
  "reset": ["ResetError", "ResetNotice", "reset_containers", "reset_notice"],
  "run": ["RunFile", "RunRecord", "StopFile", "find_run", "new_run_id", "write_run"],
  "run_state": ["clear_run_state"],
  "run_status": [
    "RUN_ENDED", "RUN_FAILED", "RUN_FILE", "RUN_RUNNING", "RunStatus", "parse_run_status"],
  "sum_dtypes": ["sum_dtype"],
})
