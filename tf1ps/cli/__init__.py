"""The programs tf1ps-local, -ps, -worker, -evaluator, -predict and -reset: flags and main."""
