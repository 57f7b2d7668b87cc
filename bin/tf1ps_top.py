#!/usr/bin/env python3
"""tf1ps-top, from a checkout that is not installed."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tf1ps.cli import top  # noqa: E402  the path comes first

if __name__ == "__main__":
  top.main()
