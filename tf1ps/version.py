"""The version of tf1ps; setup.py reads this file without importing the package."""

__version__ = "0.2.0"
