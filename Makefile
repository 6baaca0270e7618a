# Everything needs only Python 3.11 or newer; `make help` lists the targets.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SEED ?=
ONLY ?=
BASE ?=
PAIRS ?=
# The tests start hundreds of processes; none of them should have to compile Runnel again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check test-faults test-cluster test-conformance bench bench-paired lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Create .venv with all dependencies, and download Spark's jars

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Runnel needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=... to another interpreter.") if sys.version_info < (3, 11) else None'
	@echo "setting up .venv; the first time this downloads about 700 MB"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m runnel.spark.jvm.fetch_jars
	@touch $(READY)

demo: $(READY) ## Show a flow from start to end: run, a new file, failing checks, a branch with new code, merge
	@$(BIN)/python demo/story.py

test: $(READY) ## Run all tests
	@$(BIN)/python -m tests.tmpfs_runner $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests runnel

check: $(READY) ## Check format, lint, types, layers, doctests and the fast tests, in under a minute
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run $(BIN)/ruff format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@layers=$$($(BIN)/lint-imports --no-logo) || { echo "$$layers"; exit 1; }; echo "$$layers" | tail -n 1
	@$(BIN)/python -m pytest -q -p no:xdist runnel tests/declare tests/test_names.py tests/test_naming.py tests/test_docs.py

test-faults: $(READY) ## Kill the lake and the service at 700 random moments, run random histories; SEED=n repeats, ONLY=word picks a part
	@SEED=$(SEED) ONLY=$(ONLY) $(BIN)/python -m tests.faults.run_faults

test-cluster: $(READY) ## Run tests on a standalone Spark cluster, and kill its parts (30 minutes; needs a whole JDK); ONLY=word picks, SEED=n repeats
	@SEED=$(SEED) ONLY=$(ONLY) $(BIN)/python -m tests.cluster.run_cluster

test-conformance: $(READY) ## Run test suites of other projects: Spark's golden SQL files on DuckDB (10 minutes); ONLY=word picks files
	@ONLY=$(ONLY) $(BIN)/python -m tests.conformance.golden

bench: $(READY) ## Compare performance with other tools, as ratios; ONLY=word picks a part
	@ONLY=$(ONLY) $(BIN)/python -m bench.run

bench-paired: $(READY) ## Compare performance with an earlier commit, alternating: BASE=commit; ONLY=workload,... picks; fails above 1.05 times
	@BASE=$(BASE) ONLY=$(ONLY) PAIRS=$(PAIRS) $(BIN)/python -m bench.paired.compare

lock: ## Update the pinned versions of all dependencies, with hashes (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  -q pyproject.toml --group dev -o requirements/dev.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  -q --group bench -c requirements/dev.txt -o requirements/bench.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  -q --group orchestrators -o requirements/orchestrators.txt

clean: ## Remove everything that was built, except downloads
	rm -rf .venv .venv-bench .venv-orchestrators .mypy_cache .ruff_cache .hypothesis .work build *.egg-info
