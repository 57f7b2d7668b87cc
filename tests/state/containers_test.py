from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, strangers
from tf1ps.cluster.description import Task
from tf1ps.state import containers

LEGAL = ["a", "Z9", "7", ".hidden", "jobs/a", "a.b-c/d", "a-", "a/", "...", "x" * 300]
ILLEGAL = ["my_problem_1", "_a", "a b", " a", "a ", "-a", "/a", "a:b", "é", "aé", "a\n", "\n"]


def accepted_by_tensorflow(name):
  """Whether ref variables and queues may live in a container of that name; both must agree."""
  answers = []
  for kind in ("variable", "queue"):
    with tf.Graph().as_default(), tf.Session() as session:
      with tf.container(name):
        if kind == "variable":
          op = tf.get_variable("v", initializer=1.0, use_resource=False).initializer
        else:
          op = tf.FIFOQueue(1, tf.int32, shared_name="q").size()
      try:
        session.run(op)
        answers.append(True)
      except tf.errors.InvalidArgumentError:
        answers.append(False)
  assert answers[0] == answers[1]
  return answers[0]


@pytest.mark.parametrize("name", ["default", "localhost"])
def test_a_name_that_resets_give_to_the_default_container_is_refused(name):
  with pytest.raises(
      ValueError, match="container %r has the name that resets give to the default" % name):
    containers.check_container_name(name)


@pytest.mark.parametrize("name", LEGAL)
def test_legal_names(name):
  assert containers.check_container_name(name) == name
  assert accepted_by_tensorflow(name)


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_names(name):
  with pytest.raises(ValueError, match="a container begins with a letter, a digit or a dot"):
    containers.check_container_name(name)
  assert not accepted_by_tensorflow(name)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["first", "later"])
def test_the_rule_is_tensorflows_for_every_character(place):
  """Also where a name has no other, which is why the control characters are there."""
  names = [chr(code) if place == "first" else "a%sb" % chr(code)
           for code in [*range(1, 128), 0xe9, 0x540d]]
  sizes = {}
  with tf.Graph().as_default() as graph, tf.Session() as session:
    for name in names:
      with graph.container(name):
        sizes[name] = tf.FIFOQueue(1, tf.int32, shared_name="q").size()
    accepted = []
    for name in names:
      try:
        session.run(sizes[name])
        accepted.append(name)
      except tf.errors.InvalidArgumentError:
        pass
  assert accepted == [name for name in names if containers._LEGAL.fullmatch(name)]


def test_resource_variables_would_accept_anything():
  with tf.Graph().as_default(), tf.Session() as session, tf.container("my_problem_1"):
    variable = tf.get_variable("v", initializer=1.0, use_resource=True)
    session.run(variable.initializer)
    assert session.run(variable) == 1.0


def container_of(op):
  return op.get_attr("container").decode("utf-8")


def test_what_is_built_in_a_container_lives_there():
  with tf.Graph().as_default():
    with containers.container_scope("jobs/a"):
      first = tf.get_variable("v", initializer=1.0).op
      with containers.container_scope("jobs/b"):  # takes the other's place
        second = tf.get_variable("w", initializer=1.0).op
      with containers.container_scope(""):
        third = tf.get_variable("x", initializer=1.0).op
      fourth = tf.get_variable("y", initializer=1.0).op
    fifth = tf.get_variable("z", initializer=1.0).op
    assert [container_of(op) for op in (first, second, third, fourth, fifth)] == [
        "jobs/a", "jobs/b", "", "jobs/a", ""]


def test_a_container_of_a_graph_that_is_not_the_default_one():
  graph = tf.Graph()
  with containers.container_scope("jobs/a", graph), graph.as_default():
    assert container_of(tf.get_variable("v", initializer=1.0).op) == "jobs/a"


def test_a_container_that_is_entered_before_the_graph_is_noticed():
  with pytest.raises(containers.ContainerError, match="nothing was built in container 'jobs/a': .*"
                     "Enter it inside of `with graph.as_default"):
    with containers.container_scope("jobs/a"):
      with tf.Graph().as_default():
        op = tf.get_variable("v", initializer=1.0).op
  assert container_of(op) == ""  # stock says nothing


def test_a_container_round_session_run_is_noticed():
  with tf.Graph().as_default(), tf.Session() as session:
    variable = tf.get_variable("v", initializer=1.0)
    session.run(variable.initializer)
    with pytest.raises(containers.ContainerError, match="around session.run it does nothing"):
      with containers.container_scope("jobs/a"):
        assert session.run(variable) == 1.0


def test_an_error_inside_of_a_container_is_the_one_that_is_raised():
  with pytest.raises(KeyError, match="mine"):
    with containers.container_scope("jobs/a"):
      raise KeyError("mine")


def test_an_illegal_container_is_refused_at_once():
  with pytest.raises(ValueError, match="'_' at position 2"):
    with containers.container_scope("my_problem_1"):
      raise AssertionError("nothing is built there")


def test_the_default_container():
  assert containers.check_container_name("") == ""


@pytest.mark.parametrize("name, character, position, suggestion", [
    ("my_problem_1", "_", 2, "my-problem-1"),
    ("_a", "_", 0, "a"),
    ("-a b", "-", 0, "a-b"),
    ("//x", "/", 0, "x"),
    ("run:1", ":", 3, "run-1"),
    ("müll", "ü", 1, "m-ll"),
    ("a\n", "\n", 1, "a-"),
    ("_-/", "_", 0, "job"),
])
def test_the_error_names_the_character_and_a_name_that_would_do(
    name, character, position, suggestion):
  with pytest.raises(ValueError) as raised:
    containers.check_container_name(name)
  assert str(raised.value).startswith(
      "container %r has %r at position %d: " % (name, character, position))
  assert str(raised.value).endswith("; %r would do" % suggestion)
  assert containers.check_container_name(suggestion) == suggestion


def test_the_control_container_is_nobodys():
  with pytest.raises(ValueError, match="where the run and the heartbeats live; choose another"):
    containers.check_container_name(containers.CONTROL)
  with pytest.raises(ValueError, match="choose another"):
    containers.clear_container(containers.CONTROL, [])
  assert accepted_by_tensorflow(containers.CONTROL)


def test_real_names():
  assert containers.real_name("", Task("ps", 3, "a:1")) == "ps"
  assert containers.real_name("jobs/a", Task("ps", 3, "a:1")) == "jobs/a"


class State:
  """A variable of each kind, in each of some containers on two ps."""

  def __init__(self, names):
    self.graph, self.ops = tf.Graph(), {}
    with self.graph.as_default():
      for index in range(2):
        for name in names:
          with tf.device("/job:ps/task:%d" % index), tf.container(name):
            ref, resource = [tf.get_variable("%s/%d/%s" % (kind, index, name or "default"),
                                             initializer=1.0, use_resource=kind == "resource")
                             for kind in ("ref", "resource")]
            self.ops[index, name] = [tf.is_variable_initialized(ref),
                                     tf.is_variable_initialized(resource)]
      self.fill = tf.global_variables_initializer()

  def is_there(self, session):
    """{(ps, container): whether its variables are initialised}."""
    return {key: all(there) if len(set(there)) == 1 else there
            for key, there in session.run(self.ops).items()}


@pytest.fixture(scope="module")
def ps(forks):
  jobs = {"ps": harness.addresses(2)}
  servers = [forks.start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for server in servers:
    server.wait_for("up")
  yield [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  for server in servers:
    server.kill()


@pytest.mark.parametrize("name", ["", "jobs/a"])
def test_clears_one_container_on_every_task_and_nothing_else(ps, name):
  names = ["", "jobs/a", "jobs/b", containers.CONTROL]
  state = State(names)
  with tf.Session("grpc://" + ps[0].address, state.graph) as session:
    session.run(state.fill)
    assert set(state.is_there(session).values()) == {True}
    containers.clear_container(name, ps)
    assert state.is_there(session) == {(i, one): one != name for i in range(2) for one in names}
    session.run(state.fill)  # the session goes on
    assert set(state.is_there(session).values()) == {True}
    containers.clear_container(name, ps[1:])
    assert state.is_there(session) == {
        (i, one): (i, one) != (1, name) for i in range(2) for one in names}


def test_what_is_not_there_is_cleared_too(ps):
  containers.clear_container("never-used", ps)
  containers.clear_container("never-used", [])


def test_a_task_that_is_down_is_named(ps):
  down = Task("ps", 2, harness.addresses(1)[0])
  state = State(["jobs/a"])
  with tf.Session("grpc://" + ps[0].address, state.graph) as session:
    session.run(state.fill)
    with pytest.raises(containers.ContainerError) as raised:
      containers.clear_container("jobs/a", [ps[0], down, ps[1]], timeout=harness.LIMIT)
    assert state.is_there(session) == {(0, "jobs/a"): False, (1, "jobs/a"): True}
  assert str(raised.value).startswith(
      "container 'jobs/a' of /job:ps/task:2 at %s was not cleared: UNAVAILABLE: " % down.address)


def test_a_task_that_is_silent_costs_the_timeout():
  with strangers.silent() as address:
    with pytest.raises(containers.ContainerError, match="DEADLINE_EXCEEDED") as raised:
      containers.clear_container("", [Task("ps", 0, address)], timeout=0.4)
  assert str(raised.value).startswith("container 'ps' of /job:ps/task:0 at %s was not" % address)


def test_variable_scopes_keep_models_apart_and_are_reset_together(ps):
  """What containers are not needed for; two containers are as apart, and are reset one by one."""
  with tf.Graph().as_default() as graph, tf.device(ps[0].name):
    there = []
    for scope, container in (("one", ""), ("two", ""), ("in", "jobs/a"), ("in2", "jobs/b")):
      with graph.container(container), tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
        there.append(tf.get_variable("v", initializer=len(there)))
    fill = tf.global_variables_initializer()
    is_there = [tf.is_variable_initialized(variable) for variable in there]
  with tf.Session("grpc://" + ps[0].address, graph) as session:
    session.run(fill)
    assert session.run(there) == [0, 1, 2, 3]
    assert [variable.op.name for variable in there[:2]] == ["one/v", "two/v"]
    containers.clear_container("jobs/a", ps)
    assert list(session.run(is_there)) == [True, True, False, True]
    containers.clear_container("", ps)
    assert list(session.run(is_there)) == [False, False, False, True]


def test_an_illegal_name_clears_nothing(ps):
  with pytest.raises(ValueError, match="position 1"):
    containers.clear_container("a_b", ps)


@pytest.mark.parametrize("job_workers, name", [
  (None, "job"), ((2, 3), "job-2-3"), ([3, 2], "job-2-3"), (tuple(range(7)), "job-0-1-2-3-4-5-6")])
def test_the_container_of_a_job_without_a_name(job_workers, name):
  assert containers.check_container_name(containers.container_of_job(job_workers)) == name


def test_many_workers_make_a_short_name_of_their_own():
  name = containers.container_of_job(range(500))
  assert name.startswith("job-0-499-") and len(name) == len("job-0-499-") + 8
  assert containers.check_container_name(name) == name
  assert containers.container_of_job([index for index in range(500) if index != 7]) != name
