"""Sphinx's settings for `make docs`: the documents and the API reference as one site.

The source folder is the root of the repository, so that the links between the documents are the
same on a site and in a checkout. The pages of docs/api/ are made from what each room exports.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import tf1ps  # noqa: E402

project = "tf1ps"
version = release = tf1ps.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst", "examples/*.md", "examples/data/*.md",
                    "examples/exercises/*.md", "tests/upstream/*.md"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "fixed_sidebar": True}
html_show_sphinx = False

autodoc_inherit_docstrings = False  # TensorFlow's hooks say what their methods are
autodoc_typehints_format = "short"
nitpicky = True  # a reference to a public name must lead to it
nitpick_ignore_regex = [
  ("py:.*", r"(?!tf1ps\.).*"),  # types of TensorFlow and Python in signatures
  ("py:.*", r"tf1ps\.\w+\.\w+\..*"),  # types that a room does not export
]
autodoc_member_order = "bysource"
myst_heading_anchors = 6

_KINDS = (("Classes", "autoclass"), ("Functions", "autofunction"), ("Errors", "autoexception"),
          ("Constants", "py:data"))
_LITERAL = re.compile(r"(`+[^`]+`+)")


def rooms():
  """Returns the names of the rooms with public names, `tf1ps` itself first."""
  folders = sorted(path.parent.name for path in (ROOT / "tf1ps").glob("*/__init__.py"))
  # The names of v1 are TensorFlow's, and importing it changes TensorFlow's mode.
  packages = ["tf1ps"] + ["tf1ps." + folder for folder in folders if folder != "v1"]
  return [each for each in packages if getattr(importlib.import_module(each), "__all__", ())]


def write_pages(app):
  """Writes a page for each room: its paragraph, then its public names by kind."""
  folder = ROOT / "docs" / "api"
  folder.mkdir(exist_ok=True)
  pages = {}
  for name in rooms():
    room = importlib.import_module(name)
    lines = [name, "=" * len(name), "", *_as_rst(inspect.getdoc(room).splitlines()), "",
             ".. currentmodule:: " + name, ""]
    members = {each: getattr(room, each) for each in room.__all__ if not each.startswith("__")}
    for title, directive in _KINDS:
      found = sorted(each for each, value in members.items() if _directive(value) == directive)
      lines += [title, "-" * len(title), ""] if found else []
      for each in found:
        lines += _entry(name, each, members[each], directive)
    pages[name + ".rst"] = "\n".join(lines)
  for path in folder.glob("*.rst"):
    if path.name not in pages:
      path.unlink()
  for name, text in pages.items():
    path = folder / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
      path.write_text(text, encoding="utf-8")


def _directive(value):
  if not isinstance(value, type):
    return "autofunction" if callable(value) else "py:data"
  return "autoexception" if issubclass(value, BaseException) else "autoclass"


def _entry(package, name, value, directive):
  """Returns the lines of a public name."""
  if package == "tf1ps":  # a room describes it
    room = importlib.import_module(".".join(value.__module__.split(".")[:2]))
    return ["* :py:obj:`%s.%s`" % (room.__name__, name), ""]
  lines = [".. %s:: %s" % (directive, name)]
  if directive == "autoclass":
    lines.append("   :members:")
    if "__init__" in vars(value):  # which has the Args; not one of TensorFlow's
      lines.append("   :class-doc-from: both")
  if directive == "py:data" and len(repr(value)) < 80:
    lines.append("   :value: %r" % (value,))
  return lines + [""]


def _as_rst(lines):
  """Turns the Markdown of docstrings into reStructuredText: code, and stars that are text."""
  for line in lines:
    parts = _LITERAL.split(line)
    for index, part in enumerate(parts):
      if index % 2:
        parts[index] = "``%s``" % part.strip("`")
        if parts[index + 1][:1].isalnum():  # such as `Session`s
          parts[index] += "\\ "
      else:
        parts[index] = re.sub(r"([*|]|_\b)", r"\\\1", part)
    yield "".join(parts)


def convert_docstring(app, what, name, value, options, lines):
  """Converts a docstring before napoleon reads its sections."""
  lines[:] = _as_rst(lines)


def paths(text):
  """Returns {heading: documents} of the lists of links in docs/index.md: the paths of a reader."""
  found = {}
  for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
    heading, _, lines = part.partition("\n")
    links = [link for line in lines.splitlines() if line.startswith("- ")
             for link in re.findall(r"\]\(([^)#]+)\.md\)", line)]
    found[heading] = [posixpath.normpath("docs/" + link) for link in links]
  return found


def add_contents(app, docname, source):
  """Adds the tables of contents to the first page: its paths, and the API reference."""
  if docname != root_doc:
    return
  listed = paths(source[0])
  known = {root_doc, *(each for documents in listed.values() for each in documents)}
  source[0] += _contents("tf1ps", ["README"])
  for heading, documents in listed.items():
    source[0] += _contents(heading, documents)
  # A page that no path has yet is no error; readme_test.py asks for its path.
  files = [path for pattern in ("*.md", "docs/*.md") for path in sorted(ROOT.glob(pattern))]
  rest = [str(path.relative_to(ROOT).with_suffix("")) for path in files]
  rest = [each for each in rest if each not in known and each != "README"]
  if rest:
    source[0] += _contents("More", rest)
  source[0] += _contents("Python", ["docs/api/" + name for name in rooms()])


def _contents(caption, documents):
  return "\n```{toctree}\n:hidden:\n:maxdepth: 1\n:caption: %s\n\n%s\n```\n" % (
    caption, "\n".join("/" + each for each in documents))


def leave_out(app, what, name, value, skip, options):
  """Leaves out what NamedTuple says of its fields."""
  return skip or (getattr(value, "__doc__", None) or "").startswith("Alias for field number")


def write_index(app, error):
  """Lets the folder of the site open at its first page."""
  if error is None:
    (pathlib.Path(app.outdir) / "index.html").write_text(
      '<meta http-equiv="refresh" content="0; url=%s.html">\n' % root_doc, encoding="utf-8")


def setup(app):
  """Connects the functions above."""
  app.connect("builder-inited", write_pages)
  app.connect("autodoc-process-docstring", convert_docstring, priority=400)
  app.connect("source-read", add_contents)
  app.connect("autodoc-skip-member", leave_out)
  app.connect("build-finished", write_index)
