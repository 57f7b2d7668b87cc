#!/usr/bin/env python3
"""tf1ps, or the program that a link to this file is named after, from a checkout."""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

from tf1ps.cli import console  # noqa: E402  the path comes first

if __name__ == "__main__":
  name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
  vars(console)[name[len("tf1ps_"):] or "main"]()
