"""Writes the files that start a job under a scheduler, from the templates beside this module."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "rendering": ["TARGETS", "render", "write"],
  "request": ["DeployError", "File", "Request"],
})
