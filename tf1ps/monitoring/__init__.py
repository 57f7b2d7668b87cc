"""Shows a running job to people and machines: status, metrics, traces.

This package only reads: no task waits for it, and it does not change the training of a job.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "chrome_trace": ["TracedRun", "make_chrome_trace"],
  "figures": ["EvaluatorFigures", "WorkerFigures"],
  "job_status": [
    "CheckpointStatus", "JobStatus", "PsStatus", "QueueStatus", "Status", "TaskStatus",
    "status_as_json", "status_from_json"],
  "metrics": ["metrics_table"],
  "metrics_address": [
    "MetricsAddress", "MetricsError", "check_prometheus_client", "parse_metrics_address"],
  "metrics_server": ["MetricsServer"],
  "status": ["StatusError", "ask_status"],
  "status_socket": ["answer_here", "ask_here"],
  "status_text": ["format_status"],
  "step_tracer": ["StepTracer"],
  "top": ["draw_on_terminal", "render"],
  "trace_summary": ["summarize_trace"],
  "web": ["StatusPage"],
})
