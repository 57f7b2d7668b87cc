"""Loads a user's program, checks it, and uses its checkpoints in one process.

A program is a Python module with `input_fn` and `model_fn`. This package checks the results of
these functions, evaluates checkpoints, writes predictions and exports models.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "arguments": [
    "CallError", "NewDataError", "PredictionError", "check_checkpoint", "check_given",
    "check_input", "check_output"],
  "calls": ["evaluate", "export", "predict"],
  "contract": [
    "AnyProgram", "ModelSpec", "ModelSpecError", "Program", "as_program", "batch_size_of",
    "build_input", "build_model", "check_variables", "is_moving_average", "load_program"],
  "evaluation": [
    "Evaluation", "EvaluationError", "evaluate_checkpoint", "format_evaluation",
    "try_evaluation"],
  "evaluator": ["EvaluatorOutcome", "RunWatch", "follow_checkpoints"],
  "metric_goals": ["MetricGoal", "parse_metric_goal"],
  "prediction": ["Prediction"],
  "saved_model": ["Export", "ExportError"],
  "schedules": ["Schedule", "build_schedule", "parse_schedule"],
  "source": ["ProgramError", "check_source", "file_of"],
  "variable_kind": ["resource_variables"],
})
