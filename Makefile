# Everything a contributor runs. `make help` lists the targets; a fresh clone needs no other step.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# `.java/env` is written by setup and names the Java that Spark shall use.
RUN := set -a; . .java/env; set +a; export PATH="$(CURDIR)/.venv/bin:$$PATH";
# Lance reports the MemWAL index, which has no fields, as an error at each look.
export LANCE_LOG ?= error,lance::index=off
# Tests and servers start hundreds of processes; each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
PROTOS := $(wildcard proto/memwal_core/format/pb/*.proto)
PROTOC := -m grpc_tools.protoc -Iproto
CODE := $(wildcard memwal_core testkit demo jobs dags plugins tests tools bench)

# How many test processes. The tests of a file stay in one of them, and so do all that use the Spark session.
PYTEST_WORKERS ?= 2
# Slow tests wait half of their time for processes that they started.
test-slow test-all: PYTEST_WORKERS = 3
# Further arguments for pytest, for example PYTEST_ARGS="-k merge".
PYTEST_ARGS ?=
# A test that ends its process is tried once more, and no more often: one that hangs takes all its time each time.
PYTEST = pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# Shows all stacks of a process whose test hangs, and ends it, also where native code holds the interpreter's lock. A bit
# less than the limits of pytest-timeout, which ends it without a word: see pyproject.toml and tests/conftest.py.
HANGS_AFTER_S = 570
test-slow test-all: HANGS_AFTER_S = 870
UNHUNG = -o faulthandler_timeout=$(HANGS_AFTER_S) -o faulthandler_exit_on_timeout=true
# What `make check` compares with: the branch that this one will be merged into, unless BASE names another.
BASE ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-13s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/setup.stamp ## Create .venv from the locks and choose a Java
	@tools/setup_java.sh

# A Python that is named goes before the one that is there.
.PHONY: named-python
.venv/setup.stamp: $(if $(filter command,$(firstword $(origin PYTHON))),named-python) requirements.lock requirements-build.lock requirements-uv.lock pyproject.toml tools/setup_python.sh tools/find_uv.sh
	@tools/setup_python.sh
	@touch $@

.PHONY: demo
demo: setup ## Run the demonstration on this machine
	@$(RUN) python -m demo

.PHONY: up down
up: setup ## Start Airflow's servers on this machine with a table to maintain; prints address and login
	@$(RUN) python -m demo up
down: setup ## Stop what `make up` started
	@$(RUN) python -m demo down || [ $$? = 3 ]

# How many times as many examples as usual `make test-fresh` tries of each property.
EXAMPLES_TIMES ?= 20

# The versions of Airflow that `make airflows` tries beside that of the lock: the newest of each proven line.
AIRFLOWS ?= 3.1.8 3.2.2

.PHONY: check test-unit test test-slow test-all test-long test-fresh packages lowest airflows
check: setup ## Look at what changed, in seconds: format, rules, types and its unit tests; BASE=commit to compare with
	@$(RUN) python -m tools.check_changed $(if $(BASE),--base $(BASE))
test-unit: setup ## Run the unit and property tests, in less than two minutes
	@$(RUN) $(PYTEST) $(UNHUNG) -m "not slow and not long" tests/unit tests/property $(PYTEST_ARGS)
test: setup ## Run all tests but the slow ones, in ten minutes on two cores
	@$(RUN) $(PYTEST) $(UNHUNG) -m "not slow and not long" $(PYTEST_ARGS)
test-slow: setup ## Run the slow tests: kills, servers, browser, Airflow, packages
	@$(RUN) $(PYTEST) $(UNHUNG) -m "slow and not long" $(PYTEST_ARGS)
test-all: setup ## Run what `make test` and `make test-slow` run, at once: waiting tests leave the cores to others
	@$(RUN) $(PYTEST) $(UNHUNG) -m "not long" $(PYTEST_ARGS)
test-long: setup ## Run the long searches: histories, power cuts, simulations and damage by the hundred
	@$(RUN) $(PYTEST) -m long $(PYTEST_ARGS)
test-fresh: setup ## Try properties with fresh inputs, EXAMPLES_TIMES=n times as many as usual
	@$(RUN) EXAMPLES_TIMES=$(EXAMPLES_TIMES) $(PYTEST) -m "not slow and not long" tests/property $(PYTEST_ARGS)

packages: setup ## Install wheel and sdist with plain pip into empty environments, for example of PYTHONS="python3.12 python3.13"
	@$(RUN) pytest tests/integration/test_package.py $(PYTEST_ARGS)

lowest: setup ## Test core, merges and commands with the lowest versions of all dependencies; needs the package index
	@tools/lowest.sh $(PYTEST_ARGS)

airflows: setup ## Test DAGs, page and docs/airflow.md with AIRFLOWS="3.1.8 3.2.2"; needs the package index
	@$(RUN) tools/airflows.sh "$(AIRFLOWS)" $(PYTEST_ARGS)

# How many seeds `make sim` plays. FIRST=n begins with seed n instead of a fresh one, SCENE=rivals plays one scene.
SEEDS ?= 100
FIRST ?=
SCENE ?=
ONLY ?=

.PHONY: sim
sim: setup ## Simulate writers, jobs, rivals, faults and crashes: SEEDS=n fresh seeds; FIRST=n SEEDS=m plays them again
	@$(RUN) python -m testkit.simulation --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) $(if $(SCENE),--scene $(SCENE)) $(if $(ONLY),--only $(ONLY))

# How long `make fleet` plays, and with how many sound tables.
MINUTES ?= 60
TABLES ?= 23

.PHONY: fleet
fleet: setup ## Maintain and disturb a fleet on real servers: MINUTES=5 TABLES=4 plays a short one
	@$(RUN) python -m testkit.fleet --minutes $(MINUTES) --sound $(TABLES)

# FULL=1 measures larger sizes for docs/benchmarks.md; NAMES="loop puts" chooses comparisons.
FULL ?=
NAMES ?=

.PHONY: bench bench-page
bench: setup ## Compare speeds on this machine, in minutes; FULL=1 takes longer and writes docs/benchmarks.md anew
	@$(RUN) python -m bench run $(NAMES) $(if $(FULL),--full --minutes 45 --json docs/benchmarks/full.json $(if $(NAMES),--update),--minutes 4.5 --json bench/results/small.json) || failed=1; \
	$(if $(FULL),python -m bench report;) exit $${failed:-0}
bench-page: setup ## Write docs/benchmarks.md and its charts from docs/benchmarks/full.json
	@$(RUN) python -m bench report

.PHONY: lint
lint: format-check rules typecheck imports layout module-size locks proto-check spelling docs ## Run all checks but the tests (-k: do not stop at the first)

.PHONY: typecheck
typecheck: setup ## Check types (part of lint)
	@$(RUN) mypy

.PHONY: format-check rules imports layout module-size locks spelling
format-check: setup
	@$(RUN) ruff format --check .
rules: setup
	@$(RUN) ruff check .
	@$(RUN) hadolint --config deploy/hadolint.yaml Dockerfile
imports: setup
	@$(RUN) lint-imports --no-logo
layout: setup
	@$(RUN) python -m tools.check_layout
module-size: setup
	@$(RUN) python -m tools.check_module_size $(CODE)
locks: setup
	@$(RUN) python -m tools.check_locks
spelling: setup
	@$(RUN) codespell

.PHONY: compose-check
compose-check: ## Check docker-compose.yaml against the compose specification; needs npx and the npm registry
	@npx --yes dclint@3.1.0 --config deploy/dclint.json docker-compose.yaml

.PHONY: format
format: setup ## Format the code and apply safe fixes
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

.PHONY: proto
proto: setup ## Generate memwal_core/format/pb from proto/
	@$(RUN) python $(PROTOC) --python_out=. --pyi_out=. $(PROTOS)

.PHONY: proto-check
proto-check: setup ## Fail if memwal_core/format/pb is not what proto/ generates (part of lint)
	@$(RUN) tools/check_proto.sh $(PROTOS)

.PHONY: docs docs-pages
docs: setup ## Build the documentation as a site in build/site, every link checked (part of lint)
	@$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
docs-pages: setup ## Generate docs/settings.md, docs/jobs.md and docs/requirements.md
	@$(RUN) python -m tools.generate_settings_doc
	@$(RUN) python -m tools.generate_jobs_doc
	@$(RUN) python -m tools.generate_requirements_doc

.PHONY: lock
lock: ## Resolve the dependencies anew; UPGRADE=1 takes newer versions
	@tools/lock.sh $(if $(UPGRADE),--upgrade)

.PHONY: lock-check
lock-check: ## Fail if the locks do not answer pyproject.toml; needs the package index
	@tools/lock.sh --check

.PHONY: clean
clean: ## Remove the environment and everything generated
	rm -rf .venv .lowest .airflows .uv .python .java .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log dist build
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
