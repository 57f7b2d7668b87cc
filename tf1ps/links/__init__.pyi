# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.links.authority import AuthorityError as AuthorityError
from tf1ps.links.authority import make_certificates as make_certificates
from tf1ps.links.identity import Identity as Identity
from tf1ps.links.identity import IdentityError as IdentityError
from tf1ps.links.network_namespace import NamespaceError as NamespaceError
from tf1ps.links.network_namespace import check_namespaces as check_namespaces
from tf1ps.links.sidecar import LinkError as LinkError
from tf1ps.links.task_side import SidecarError as SidecarError
from tf1ps.links.task_side import deliver as deliver
from tf1ps.links.task_side import enter as enter
from tf1ps.links.task_side import is_inside as is_inside
from tf1ps.links.task_side import listen as listen
from tf1ps.links.task_side import on_lost as on_lost
from tf1ps.links.task_side import relay as relay
from tf1ps.links.task_side import silence_grpc as silence_grpc
