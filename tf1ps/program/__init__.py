"""Loads a user's program, checks it, and uses its checkpoints in one process.

A program is a Python module with `input_fn` and `model_fn`. This room checks the results of these
functions, evaluates checkpoints, writes predictions and exports models.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "choices": ["OPTIMIZERS", "VARIABLES"],
  "contract": [
    "ModelSpec", "ModelSpecError", "Program", "ProgramError", "as_program", "batch_size_of",
    "build_input", "build_model", "check_variables", "is_moving_average", "load_program"],
  "evaluation": [
    "Evaluation", "EvaluationError", "evaluate", "format_evaluation", "try_evaluation"],
  "evaluator": [
    "EvaluatorOutcome", "RunWatch", "follow_checkpoints", "summarize_evaluation"],
  "export": ["Export", "ExportError", "export_saved_model"],
  "metric_goals": [
    "EarlyStopping", "MetricGoal", "parse_early_stopping", "parse_metric_goal"],
  "moving_averages": ["AveragedOptimizer", "build_moving_average"],
  "optimizers": ["add_l2_gradients", "learning_rate_of", "make_optimizer"],
  "prediction": ["Prediction", "PredictionError", "predict"],
  "schedules": ["Schedule", "build_schedule", "parse_schedule"],
  "variable_kind": ["RESOURCE", "kind_scope"],
})
