"""What the launcher has imported once, for all of its tasks."""

from tf1ps.cli import (
    evaluator,  # noqa: F401
    ps,  # noqa: F401
    worker,  # noqa: F401
)
  # noqa: F401
  # noqa: F401
