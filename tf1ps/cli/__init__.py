"""The programs: flags and main of tf1ps-local, -ps, -worker, -evaluator and -predict."""
