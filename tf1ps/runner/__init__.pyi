# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.runner.files import files_of_module as files_of_module
from tf1ps.runner.files import find_own_files as find_own_files
from tf1ps.runner.files import is_own_file as is_own_file
from tf1ps.runner.imports import Replacement as Replacement
from tf1ps.runner.imports import replace_imports as replace_imports
from tf1ps.runner.loader import Compiler as Compiler
from tf1ps.runner.loader import ProgramNotFoundError as ProgramNotFoundError
from tf1ps.runner.loader import answer_imports as answer_imports
from tf1ps.runner.loader import code_of_module as code_of_module
from tf1ps.runner.loader import run_code as run_code
from tf1ps.runner.numpy_hints import numpy_hint as numpy_hint
from tf1ps.runner.own_flags import OwnFlags as OwnFlags
from tf1ps.runner.own_flags import ignored_flags as ignored_flags
from tf1ps.runner.python2 import MissingLibraryError as MissingLibraryError
from tf1ps.runner.python2 import Python2 as Python2
from tf1ps.runner.python2 import looks_like_python2 as looks_like_python2
