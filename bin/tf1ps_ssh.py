#!/usr/bin/env python3
"""tf1ps-ssh, from a checkout that is not installed."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tf1ps.cli import ssh  # noqa: E402  the path comes first

if __name__ == "__main__":
  ssh.main()
