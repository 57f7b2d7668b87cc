# From a fresh clone: `make train` trains the quick start's network, `make test` runs the tests.
# Both first make an environment in .venv with the Python that they find, which takes a minute.

VENV = .venv
LEGACY_VENV = .venv-legacy
DIST = dist
PYTHONS = 3.13 3.12 3.11 3.10
# A file for each Python names the version of each package. `make newest` leaves them out.
LOCK = .ci/constraints
# Tests of clusters wait as well as compute: more than two at a time keep two cores busy, and of
# whole jobs still more. Each process takes neighbours, which share their servers, and then from
# whoever has most left.
TEST_PROCESSES = 4
JOB_PROCESSES = 4
PYTEST = -m pytest --dist worksteal
PROGRAM = examples/digits.py
TRAIN_FLAGS = --num_ps=2 --num_workers=2

BENCH = benchmarks-results
MATRIX = matrix-results
SITE = site
SECONDS = 60
SEED =
CHAOS = -m tools.chaos run $(if $(SEED),--seed=$(SEED)) $(ARGS)

.PHONY: help train test test-legacy test-jobs test-slow test-slow-legacy steady steady-legacy newest lock examples \
  examples-legacy bench bench-quick matrix matrix-quick pairs pairs-legacy chaos soak lint docs \
  wheel clean train-flags

# install VENV,EXTRAS
comma = ,
install = $(if $(LOCK),PIP_CONSTRAINT=$$($(1)/bin/python -c \
  'import sys; print("$(LOCK)/%d.%d.txt" % sys.version_info[:2])')) \
  $(1)/bin/python -m pip install --quiet --editable ".[$(2)]"

help:
	@echo "make train        train on the handwritten digits with 2 ps and 2 workers"
	@echo "make test         run the tests (ARGS='-k name' for some of them)"
	@echo "make test-legacy  run those that depend on TensorFlow on 1.15 (needs a Python 3.7)"
	@echo "make test-jobs    run one whole job of each kind: asynchronous, in-graph, a legacy trainer, ..."
	@echo "make test-slow    run those that take long: whole jobs, which make test leaves out"
	@echo "make test-slow-legacy  and on TensorFlow 1.15"
	@echo "make steady       run the tests RUNS=5 times beside a load: which of them fail at times?"
	@echo "make steady-legacy  and on TensorFlow 1.15"
	@echo "make newest       run the tests with the newest packages, in an environment of their own"
	@echo "make lock         write the newest packages' versions to $(LOCK)/, which make installs"
	@echo "make examples     run the examples and compare what they print (ARGS=B13 for some of them)"
	@echo "make examples-legacy  and on TensorFlow 1.15"
	@echo "make matrix       make every task fail in every way, at each moment (ARGS='-k ps-training')"
	@echo "make matrix-quick  the same with short waits"
	@echo "make pairs        two faults in a job, COUNT=300 pairs drawn by SEED=1"
	@echo "make pairs-legacy  and on TensorFlow 1.15"
	@echo "make bench        compare with every peer: hours, and a quiet machine (ARGS=latency_S for one)"
	@echo "make bench-quick  see that every kind of benchmark runs"
	@echo "make chaos        disturb a job at random for SECONDS=60, and check its history (SEED=7)"
	@echo "make soak         the same for 20 minutes, with every fault in every role and phase"
	@echo "make lint         check style and types, and that everything is Python 3.7"
	@echo "make docs         make the documents and the API reference as a site in $(SITE)/"
	@echo "make wheel        build the wheel into $(DIST)/"
	@echo "make clean        remove the environments, builds and caches"
	@echo
	@echo "PYTHON=... and LEGACY_PYTHON=... name the interpreters to use; 'make clean' first."

train: $(VENV)/installed
	$(VENV)/bin/tf1ps-local --program=$(PROGRAM) $(TRAIN_FLAGS)

test: $(VENV)/installed
	$(VENV)/bin/python $(PYTEST) -n $(TEST_PROCESSES) -m "not slow" $(ARGS)

test-legacy: $(LEGACY_VENV)/installed
	$(LEGACY_VENV)/bin/python $(PYTEST) -n $(TEST_PROCESSES) -m "not slow and not any_tensorflow" $(ARGS)

test-jobs: $(VENV)/installed
	$(VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) -m job $(ARGS)

test-slow: $(VENV)/installed
	$(VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) -m slow $(ARGS)

test-slow-legacy: $(LEGACY_VENV)/installed
	$(LEGACY_VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) -m "slow and not any_tensorflow" $(ARGS)

# ARGS names tests, RUNS how often they run.
STEADY = -m tools.flaky.repeat $(if $(RUNS),--runs=$(RUNS))
steady: $(VENV)/installed
	$(VENV)/bin/python $(STEADY) -m "not slow" $(ARGS)

steady-legacy: $(LEGACY_VENV)/installed
	$(LEGACY_VENV)/bin/python $(STEADY) -m "not slow and not any_tensorflow" $(ARGS)

newest:
	rm -rf .venv-newest
	$(MAKE) VENV=.venv-newest LOCK= test
	.venv-newest/bin/python -m pip freeze --exclude-editable

lock:
	for version in 3.7 $(PYTHONS); do \
	  extras=test; test $$version = 3.7 || extras=test,lint,docs,bench; \
	  python=$$(.ci/find_python PYTHON_TO_LOCK $$version) && \
	  .ci/lock "$$python" $$extras $(LOCK)/$$version.txt || exit 1; \
	done

examples: $(VENV)/installed
	$(VENV)/bin/python -m tests.examples $(ARGS)

examples-legacy: $(LEGACY_VENV)/installed
	$(LEGACY_VENV)/bin/python -m tests.examples $(ARGS)

# The cells of docs/survival.md. They wait longer than they compute.
matrix: $(VENV)/installed
	mkdir -p $(MATRIX)
	TF1PS_MATRIX_WHOLE=1 TF1PS_MATRIX_PACE=$(or $(PACE),full) TF1PS_MATRIX_ROWS=$(abspath $(MATRIX))/rows.jsonl \
	  $(VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) tests/survival/matrix_test.py tests/survival/worlds_test.py $(ARGS)

matrix-quick:
	$(MAKE) matrix PACE=quick

# Pairs of faults, in the same places.
PAIRS = TF1PS_PAIRS_SEED=$(or $(SEED),1) TF1PS_PAIRS_COUNT=$(or $(COUNT),300) \
  TF1PS_MATRIX_PACE=$(or $(PACE),quick) TF1PS_MATRIX_ROWS=$(abspath $(MATRIX))/pairs.jsonl

pairs: $(VENV)/installed
	mkdir -p $(MATRIX)
	$(PAIRS) $(VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) tests/survival/pairs_test.py $(ARGS)

pairs-legacy: $(LEGACY_VENV)/installed
	mkdir -p $(MATRIX)
	$(PAIRS) $(LEGACY_VENV)/bin/python $(PYTEST) -n $(JOB_PROCESSES) tests/survival/pairs_test.py $(ARGS)

# The classic script on TensorFlow 1.15 runs in the environment that `make test-legacy` makes.
bench: $(VENV)/installed
	$(call install,$(VENV),bench)
	mkdir -p $(BENCH)
	$(VENV)/bin/python -m benchmarks $(ARGS) --json $(BENCH)/rows.jsonl --chart $(BENCH)/chart.png \
	  --legacy_python "$(wildcard $(LEGACY_VENV)/bin/python)" | tee $(BENCH)/tables.md

bench-quick: $(VENV)/installed
	$(VENV)/bin/python -m benchmarks --quick $(ARGS)

chaos: $(VENV)/installed
	$(VENV)/bin/python $(CHAOS) --seconds=$(SECONDS)

soak: $(VENV)/installed
	$(VENV)/bin/python $(CHAOS) --seconds=1200

# A Python 3.7, where there is one, has the last word on what is Python 3.7.
lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	@if python=$$(.ci/find_python LEGACY_PYTHON 3.7); then set -x; \
	  "$$python" -m compileall -q setup.py $(wildcard benchmarks bin examples tests tf1ps tools); fi

# A dead link, or a docstring that cannot be read, is an error.
docs: $(VENV)/installed
	$(call install,$(VENV),docs)
	$(VENV)/bin/python docs/pictures/draw.py
	$(VENV)/bin/python -m sphinx -b html -E -c docs -d $(SITE)/.doctrees -W --keep-going -q . $(SITE)

# What an older build left in build/ would come along, even when its source is gone.
wheel: $(VENV)/installed
	rm -rf build
	$(VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir=$(DIST) .
	rm -rf build

clean:
	rm -rf $(VENV) $(LEGACY_VENV) .venv-newest $(DIST) $(BENCH) $(MATRIX) $(SITE) docs/api build *.egg-info .pytest_cache .ruff_cache \
	  .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

train-flags:
	@echo "$(TRAIN_FLAGS)"

# The file `installed` is younger than setup.py once everything that it names is there.
$(VENV)/installed: setup.py $(wildcard $(LOCK)/*)
	@python=$$(.ci/find_python PYTHON $(PYTHONS)) && set -x && \
	  "$$python" -m venv $(VENV)
	$(call install,$(VENV),test$(comma)lint)
	@touch $@

$(LEGACY_VENV)/installed: setup.py $(wildcard $(LOCK)/3.7.txt)
	@python=$$(.ci/find_python LEGACY_PYTHON 3.7) && set -x && \
	  "$$python" -m venv $(LEGACY_VENV)
	$(call install,$(LEGACY_VENV),test)
	@touch $@
