"""The contract with a user's program: loading it, its model, evaluation, prediction, export."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "choices": ["OPTIMIZERS", "VARIABLES"],
  "evaluation": ["Evaluation", "EvaluationError", "evaluate", "format_evaluation"],
  "evaluator": ["follow_checkpoints"],
  "export": ["ExportError", "export_saved_model"],
  "loader": ["Program", "ProgramError", "batch_size_of", "build_input", "load_program"],
  "model": ["ModelSpec", "ModelSpecError", "check_model_spec"],
  "optimizers": ["learning_rate_of", "make_optimizer"],
  "prediction": ["PredictionError", "predict"],
  "variable_kind": ["RESOURCE", "kind_scope"],
})
