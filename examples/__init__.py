"""Programs and examples of tf1ps. Installed, this folder is the package `tf1ps_examples`.

In a checkout a program is named by its path, `--program=examples/digits.py`; where tf1ps was
installed from a wheel, by its module, `--program=tf1ps_examples.digits`. As a file finds the files
beside it, so does a module: its imports are the same in both cases.
"""
import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
