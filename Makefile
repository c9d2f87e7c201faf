# Each target works alone on a fresh clone. What set-up does, and when it does nothing, is in .ci/setup.
PORT ?= 8000
HOST = 127.0.0.1
MODEL ?=
ARGS ?=
PYTHON_IN_VENV = .venv/bin/python
PYTEST = $(PYTHON_IN_VENV) -m pytest

.PHONY: help run test test-fast lint soak gpu-check bench clean

help:
	@echo "make run        start the page and an engine on http://$(HOST):$(PORT)  (PORT= HOST= MODEL= ARGS=)"
	@echo "make test       every test, the browser's included  (ARGS= goes to pytest)"
	@echo "make test-fast  the tests without model and browser"
	@echo "make lint       formatting, ruff, mypy, the scripts' types, vendored files"
	@echo "make soak       the long tests"
	@echo "make gpu-check  on a GPU: is it right, is it quick  (DRY=1: try it on a CPU)"
	@echo "make bench      benchmarks  (ARGS=)"
	@echo "make clean      remove what the targets above made, .venv included"

run:
	@.ci/setup run
	@exec $(PYTHON_IN_VENV) -m app serve --host $(HOST) --port $(PORT) $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# A worker per core. Each has one thread to compute with: two that compute on the same two cores wait for each other.
# The browser's tests come second, file by file and in processes of their own: Playwright leaves an event loop running
# in the one it was used in. They all lie in one folder: reading the other tests too, and torch for them, takes long.
# Status 5 is "no such test", for ARGS that name some. Compiled files are kept, whatever the shell says: each process
# would compile the same modules anew.
WORKERS = -n logical --maxprocesses 4
ONE_THREAD = OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1
BROWSER_TESTS = $(or $(ARGS),tests/browser)
test test-fast soak: export PYTHONDONTWRITEBYTECODE =

test:
	@.ci/setup test
	@CHROMIUM="$$(.ci/browser)" && export CHROMIUM && \
	{ $(ONE_THREAD) $(PYTEST) $(WORKERS) --dist worksteal -m "not browser and not soak" $(ARGS) || [ $$? = 5 ]; } && \
	{ $(PYTEST) -m "alone and not soak" $(BROWSER_TESTS) || [ $$? = 5 ]; } && \
	{ $(PYTEST) $(WORKERS) --dist loadfile -m "browser and not alone and not soak" $(BROWSER_TESTS) || [ $$? = 5 ]; }

test-fast:
	@.ci/setup test
	@$(ONE_THREAD) $(PYTEST) -m "not model and not browser and not soak" $(WORKERS) --dist worksteal $(ARGS)

# The types that JSDoc gives the scripts are checked by the TypeScript inside deno: a wheel, so no node is needed. It asks
# nothing of the network, and what it keeps lies in .venv.
CHECK_TYPES = DENO_DIR=.venv/deno DENO_NO_UPDATE_CHECK=1 .venv/bin/deno check --quiet --no-remote --no-npm --config .ci/deno.json

lint:
	@.ci/setup test
	$(PYTHON_IN_VENV) -m ruff format --check .
	$(PYTHON_IN_VENV) -m ruff check .
	$(PYTHON_IN_VENV) -m mypy
	$(CHECK_TYPES) static/js
	$(PYTHON_IN_VENV) .ci/vendored.py

# The property tests of every module with a larger budget, and the tests marked soak.
soak:
	@.ci/setup test
	@CHROMIUM="$$(.ci/browser)" && export CHROMIUM && HYPOTHESIS_PROFILE=soak $(PYTEST) -m "soak or hypothesis" --timeout 3600 $(ARGS)

# On a machine with a GPU, whatever Python has torch there; no network. DRY=1: the way through it, on a CPU.
gpu-check:
	@python=$$([ -x $(PYTHON_IN_VENV) ] && echo $(PYTHON_IN_VENV) || echo $${PYTHON:-python3}); \
	$$python -c 'import torch' 2>/dev/null || { echo "make gpu-check needs a Python with torch; $$python has none. Name one: PYTHON=…, or let make run install it."; exit 2; }; \
	$$python -m benchmarks.gpu_check $(if $(DRY),--dry) $(ARGS)

bench:
	@.ci/setup test
	@$(PYTHON_IN_VENV) -m benchmarks $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
