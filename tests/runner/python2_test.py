from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tf1ps.runner import python2

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def converter():
  return python2.Python2()


@pytest.mark.parametrize("old, new", [
    ("print 'loss', loss", "print('loss', loss)"),
    ("print 'loss',", "print('loss', end=' ')"),
    ("print ('step', 1); print", "print ('step', 1); print()"),
    ("print ('step', 1); print 2", "print(('step', 1)); print(2)"),
    ("print >>f, 'a'", "print('a', file=f)"), ("print ('%d') % 3", "print(('%d') % 3)"),
    ("for k, v in d.iteritems(): f(k)", "for k, v in d.items(): f(k)"),
    ("print d.keys()[0]", "print(list(d.keys())[0])"),
    ("reload(sys); sys.setdefaultencoding('utf8')", "None; None"),
    ("raise ValueError, 'no'", "raise ValueError('no')"),
    ("if 1L <> 0777: exec 'x'", "if 1 != 0o777: exec('x')"),
    ("import cPickle as pickle; print 1", "import pickle as pickle; print(1)"),
    ("import urllib2; print urllib2.urlopen(u'a')",
     "import urllib.request, urllib.error, urllib.parse; print(urllib.request.urlopen('a'))"),
    ("print input(), raw_input()", "print(eval(input()), input())"),
    ("for line in file(name): print line", "for line in open(name): print(line)"),
    ("start = time.clock()", "start = time.perf_counter()"),
    ("from time import clock, time", "from time import perf_counter as clock, time"),
    ("from time import clock as now", "from time import perf_counter as now"),
    ("for k, v in hps.values().iteritems(): f(k)", "for k, v in hps.values().items(): f(k)"),
    ("print self.hparams.values()", "print(self.hparams.values())"),
    ("print zip(a, b), map(f, a)", "print(list(zip(a, b)), list(map(f, a)))")])
def test_what_is_mended(converter, old, new):
  fixed = converter.convert(old + "\n")
  assert fixed.text == new + "\n"
  assert fixed.changed == [(1, old, new)]


@pytest.mark.parametrize("source", [
    "print('a', 'b', file=f)\nx = input()\n", "x = f'{a}'\n",
    "from __future__ import annotations, print_function\nimport helper\nprint(1, end='')\n",
    "def f(file): file(1)\n", "from disk import file\nfile(1)\n", "f = lambda file: file(1)\n",
    "class Disk:\n  def file(self, x):\n    x.file(1)\n", "watch.time.clock()\n",
    "\n", "values = hparams.values()\n", "rate = p.values()['rate']\n", "neither = = \n"])
def test_what_stays(converter, source):
  assert converter.convert(source) == (
    source, list(range(1, source.count("\n") + 2)), [], [])


def test_a_file_is_opened_beside_a_function_that_has_a_name_like_it(converter):
  source = "def f():\n  with open(a) as file:\n    g(file)\ndef h():\n  return file(a)\n"
  assert converter.convert(source).text == source.replace("file(a)\n", "open(a)\n")


def test_names_that_became_keywords_stay_names(converter):
  source = """
class Flags(object):
  async = 1
def f(flags, await=2, **rest):
\tflags.async += await
\treturn flags.async, rest, "async"  # async
print f(Flags, async=5),
"""
  fixed = converter.convert(source)
  assert [change.line for change in fixed.changed] == [7]
  assert fixed.changed[0].new == "print(f(Flags, async=5), end=' ')"
  seen = {}
  exec(fixed.text.replace("print(", "shown = (").replace(", end=' '", ""), seen)
  assert seen["shown"] == (3, {"async": 5}, "async") and vars(seen["Flags"])["async"] == 3


def test_keywords_stay_keywords_in_python_3(converter):
  source = "async def f():\n  await g()\n"
  assert converter.convert(source).text == source
  wrong = source + "return = 1\nx = xrange(3)\n"
  assert converter.convert(wrong).text == wrong


def test_a_file_that_python_3_can_read_is_mended_as_well(converter):
  fixed = converter.convert("print('a', 'b')\nfor i in xrange(3):\n  x = input(unicode(i))\n")
  assert fixed.text == "print('a', 'b')\nfor i in range(3):\n  x = input(str(i))\n"
  assert [change.line for change in fixed.changed] == [2, 3]


def test_lines_that_become_several_keep_their_number(converter):
  fixed = converter.convert("one = 1\n\nfrom urllib import urlopen, quote\n# four\n\n"
                       "def f((a, b)):\n  # seven\n  return '''\n\n''' + a\nprint 11\n\n# end")
  assert [line for line in fixed.text.split("\n")] == [
    "one = 1", "from urllib.request import urlopen", "from urllib.parse import quote", "# four",
    "", "def f(xxx_todo_changeme):", "  # seven", "  (a, b) = xxx_todo_changeme", "  return '''",
    "", "''' + a", "print(11)", "", "# end", ""]
  assert fixed.lines == [1, 3, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14]
  assert [change.line for change in fixed.changed] == [3, 6, 8, 11]


def test_tabs_reach_to_the_next_column_of_eight(converter):
  fixed = converter.convert("if 1:\n        a = '''\n\tb'''\n\tprint a\n")
  assert fixed.text == "if 1:\n        a = '''\n\tb'''\n        print(a)\n"


def test_the_division_of_integers_is_said_and_not_changed(converter):
  source = "print 1\na = b / 2\na = b / 2.0\na = b / float(c)\na /= 3\na = b // 2\n"
  fixed = converter.convert(source)
  assert [line for line, _ in fixed.remarks] == [2, 5]
  assert "a = b / 2\n" in fixed.text and "a /= 3" in fixed.text
  assert converter.convert("from __future__ import division\n" + source).remarks == []
  assert converter.convert(source[len("print 1\n"):]).remarks == []  # nothing of Python 2 in it


@pytest.mark.parametrize("line", [
    "print 'a'", "if x: print 'a'", "if x == ':#': print 'a'", "a = 1; print a",
    "if x: pass\nelse: print a",
    "def f(): print 'a' % 3", "for i in x: exec i", "while 1: raise E, 'x'",
    "print ('%d' % 3), 4 if 1", "exec 'a'", "raise E, 'x'", "x = `a`",
    "a <> b", "x = 0777", "x = 10L", "x = ur'a'", "def f(a, (b, c)): pass", "f = lambda (a, b): a",
    "try: pass\nexcept E, e: pass", "if 1:\n        a\n\tb",
    "if FLAGS.async: pass", "f(a, async=True)", "f(a, async)", "await = 3", "from a import async"])
def test_which_errors_look_like_python_2(line):
  with pytest.raises(SyntaxError) as caught:
    compile(line + "\n", "here", "exec")
  assert python2.looks_like_python2(caught.value)


@pytest.mark.parametrize("line", [
    "xrange(3)", "{}.iteritems()", "{}.has_key(1)", "iter([]).next()", "import cPickle",
    "sys.maxint", "file('a')", "import urllib; urllib.urlopen", "print >>sys.stdout, 'a'",
    "print ('%d') % 3", "len(map(abs, []))", "zip([], [])[0]", "{}.keys()[0]", "{}.keys().sort()",
    "range(3)[0] = 1", "[] + range(3)", "range(3) + [1]", "{}.items() + []"])
def test_which_other_errors_look_like_python_2(line):
  with pytest.raises((NameError, AttributeError, ImportError, TypeError)) as caught:
    exec(line)
  assert python2.looks_like_python2(caught.value)


def test_a_clock_that_newer_pythons_lack_looks_like_python_2():
  assert python2.looks_like_python2(AttributeError("module 'time' has no attribute 'clock'"))
  assert python2.looks_like_python2(ImportError("cannot import name 'clock' from 'time' (x)"))


@pytest.mark.parametrize("line", ["x = = 3", "print('a'", "if x: print('a'", "x = 'a: raise E, ",
                                  "x =  # b: print a", "f(", "import absent", "absent", "[].x",
                                  "raise ValueError('xrange')", "len(3)", "[] + 3"])
def test_which_errors_do_not(line):
  with pytest.raises((SyntaxError, NameError, AttributeError, ImportError, ValueError,
                      TypeError)) as caught:
    exec(line)
  assert not python2.looks_like_python2(caught.value)


def test_without_a_writable_home(tmp_path):
  (tmp_path / "file").write_text("")
  program = (
    "from tf1ps import runner; assert 'print(1)' in runner.Python2().convert('print 1').text")
  subprocess.run([sys.executable, "-c", program], check=True, cwd=str(ROOT),
                 env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path / "file"), PYTHONPATH=str(ROOT)))


def test_without_the_library(monkeypatch):
  monkeypatch.setitem(sys.modules, "fissix.refactor", None)
  with pytest.raises(python2.MissingLibraryError, match="pip install 'tf1ps\\[legacy\\]'"):
    python2.Python2()
