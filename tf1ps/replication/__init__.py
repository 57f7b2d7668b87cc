"""Combines the gradients of several replicas.

The package has synchronous updates (`SyncReplicasOptimizer`), towers in one graph, clones on the
devices of a worker, all-reduce without a ps, bounds on staleness, and the cost of a split model.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "client_graph": ["build_in_graph_asynchronous", "build_in_graph_synchronous"],
  "clocks": ["CLOCK_LEFT", "Clocks", "ClocksView", "LeadHook", "view_clocks"],
  "clones": [
    "ClonePart", "build_clones", "devices_here", "local_devices", "split_batch", "split_unevenly",
    "with_cpu_devices"],
  "collectives": ["is_late_message"],
  "gradients": ["clip_gradients", "reduce_gradients"],
  "lost_replicas": ["LostReplicas"],
  "mirrored_model": ["build_mirrored"],
  "peers": ["PEER_ERRORS", "PeerLostError", "missing_tasks", "watch_peers"],
  "replica_threads": ["ReplicaError", "ReplicaThreads", "ReplicasLeft"],
  "round_errors": ["RoundRulesError", "explain_round_error", "is_end_of_replicas"],
  "rounds": ["RoundResult", "RoundState", "view_rounds"],
  "session_ops": ["all_reduce_feed", "all_reduce_starts", "clear_ops", "partial_updates"],
  "split_cost": [
    "compare_split", "crossings", "crossings_by_devices", "split_table", "total_crossings"],
  "staleness": [
    "AGE_TABLE_SIZE", "AgeTable", "Ages", "age_at_push", "apply_unless_older", "begin_gradient_age",
    "damped_learning_rate", "gradient_age", "read_ages"],
  "sync_hook": ["ReplicaLostError", "SyncReplicasHook"],
  "sync_replicas_optimizer": ["SyncReplicasOptimizer", "sync_optimizers"],
  "uneven": [
    "ON_UNEVEN", "PAD", "REPEAT", "SHRINK", "STOP_ALL", "UNEVEN_POLICIES", "UnevenPolicy"],
})
