# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.deploy.rendering import TARGETS as TARGETS
from tf1ps.deploy.rendering import render as render
from tf1ps.deploy.rendering import write as write
from tf1ps.deploy.request import DeployError as DeployError
from tf1ps.deploy.request import File as File
from tf1ps.deploy.request import Request as Request
