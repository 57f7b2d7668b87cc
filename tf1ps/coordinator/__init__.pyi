# The public names, for editors and type checkers. Made by `python -m tests.stubs`.
from tf1ps.coordinator.cluster_coordinator import ClusterCoordinator as ClusterCoordinator
from tf1ps.coordinator.functions import FunctionError as FunctionError
from tf1ps.coordinator.functions import PerWorkerDataset as PerWorkerDataset
from tf1ps.coordinator.functions import PerWorkerValues as PerWorkerValues
from tf1ps.coordinator.steps import RemoteValue as RemoteValue
from tf1ps.coordinator.steps import StepCancelledError as StepCancelledError
from tf1ps.coordinator.steps import StepError as StepError
