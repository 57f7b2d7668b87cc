"""What the launcher has imported once, for all of its tasks."""

from tf1ps.cli import (
    evaluator,  # noqa: F401
    ps,  # noqa: F401
    worker,  # noqa: F401
)
from tf1ps.training import evaluator as training_evaluator  # noqa: F401
from tf1ps.training import worker as training_worker  # noqa: F401
