"""`python -m tf1ps NAME ARGUMENTS...`: the command tf1ps of this Python's environment."""

from tf1ps.cli.console import main

if __name__ == "__main__":
  main()
