"""The versions that make installs."""
from __future__ import annotations

import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = pathlib.Path(__file__).resolve().parents[1] / ".ci" / "constraints"


@pytest.mark.parametrize("version", ["3.7", "3.10", "3.11", "3.12", "3.13"])
def test_each_package_that_is_named_in_setup_py_is_locked(version):
  from importlib import metadata  # late: Python 3.7, which leaves this test out, has none

  text = (CONSTRAINTS / (version + ".txt")).read_text()
  locked = dict(re.findall(r"^(\S+)==(\S+)$", text, re.MULTILINE))
  extras = ["test"] if version == "3.7" else ["test", "lint", "docs", "bench"]
  needed = [required for required in map(Requirement, metadata.requires("tf1ps"))
            if any(required.marker is None or required.marker.evaluate(
              {"python_version": version, "extra": extra}) for extra in extras)]
  assert {"tensorflow", "pytest"} <= {each.name for each in needed}
  names = {canonicalize_name(name): found for name, found in locked.items()}
  for each in needed:
    assert names[canonicalize_name(each.name)] in each.specifier, each
