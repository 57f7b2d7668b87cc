"""Shows a running job to people and machines: status, metrics, traces.

Everything here only reads: no task waits for it, and a job without it trains the same.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "chrome_trace": ["TracedRun", "make_chrome_trace"],
  "figures": ["EvaluatorFigures", "WorkerFigures"],
  "metrics": ["metrics_table"],
  "metrics_address": [
    "MetricsAddress", "MetricsError", "check_prometheus_client", "parse_metrics_address"],
  "metrics_server": ["MetricsServer"],
  "status": [
    "CheckpointStatus", "JobStatus", "PsStatus", "QueueStatus", "Status", "StatusError",
    "TaskStatus", "ask_status"],
  "status_text": ["format_status", "status_as_json"],
  "step_tracer": ["StepTracer"],
  "top": ["draw_on_terminal", "render"],
  "trace_summary": ["summarize_trace"],
})
