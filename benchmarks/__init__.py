"""What tf1ps measures against its peers; `python -m benchmarks` runs it. See docs/benchmarks.md."""
