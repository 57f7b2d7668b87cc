# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.cli.errors import UsageError as UsageError
from tf1ps.cli.from_python import main as main
from tf1ps.cli.from_python import run_local as run_local
from tf1ps.cli.results import JobResult as JobResult
from tf1ps.cli.results import LocalJobError as LocalJobError
