# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.doctor.findings import DIFFERS as DIFFERS
from tf1ps.doctor.findings import Finding as Finding
from tf1ps.doctor.findings import GONE as GONE
from tf1ps.doctor.findings import Rule as Rule
from tf1ps.doctor.findings import TRAP as TRAP
from tf1ps.doctor.fixing import fix as fix
from tf1ps.doctor.program import SourceFile as SourceFile
from tf1ps.doctor.program import UnreadableError as UnreadableError
from tf1ps.doctor.program import read_program as read_program
from tf1ps.doctor.registry import RULES as RULES
from tf1ps.doctor.registry import find_all as find_all
