# Everything here works on a machine with Python 3.11 or newer, Java 17 or newer and make, and nothing else.
# PYTHON=/path/to/python3 chooses the Python; PYTEST_ARGS is handed to pytest (PYTEST_ARGS="-n 2 tests/core"). Both may be
# given to make or stand in the environment.

VENV = .venv
PYTHON ?=
PYTEST_ARGS ?=
# Tests start some thousand processes of Python: without what Python compiled once, each compiles the source again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo cluster-demo test test-unit lint types imports check docs site bench soak clean java venv venv-dev

help:
	@echo "make demo      run the demonstration: flight delays by carrier"
	@echo "make cluster-demo run it on a Spark cluster of this machine: a worker is killed, and comes back"
	@echo "make test-unit run the tests that need no Kafka and no Spark, and kill no job"
	@echo "make test      run all tests (PYTEST_ARGS=... for pytest)"
	@echo "make lint      check the code with ruff"
	@echo "make types     check the types with mypy --strict"
	@echo "make imports   check that imports obey the table"
	@echo "make check     lint, types, imports and test"
	@echo "make docs      write the pages that are made from the code"
	@echo "make site      make the documentation a site, in build/site"
	@echo "make bench     measure; each number that is claimed comes from there"
	@echo "make soak      run for long, with processes killed and stopped"
	@echo "make clean     remove the environment and the caches"
	@echo "All but help and clean make .venv first, once. PYTHON=... chooses the Python."

demo: java venv
	@$(VENV)/bin/headrace demo

cluster-demo: java venv
	@$(VENV)/bin/python scripts/cluster_demo.py

test: java venv-dev
	@$(VENV)/bin/python tests/support/class_archive.py
	@scripts/browser.sh
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-unit: venv-dev
	$(VENV)/bin/python -m pytest -m unit -n 2 --dist loadfile $(PYTEST_ARGS)

lint: venv-dev
	$(VENV)/bin/ruff check .

types: venv-dev
	$(VENV)/bin/mypy

imports: venv-dev
	$(VENV)/bin/python -m pytest -q tests/project/test_imports.py

check: lint types imports test

docs: venv-dev
	$(VENV)/bin/python scripts/configuration_page.py docs/configuration.md
	$(VENV)/bin/python scripts/api_page.py docs/api.md
	$(VENV)/bin/python scripts/metrics_page.py docs/metrics.md
	$(VENV)/bin/python scripts/errors_page.py docs/errors.md

site: venv-dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet --strict

bench: java venv-dev
	@for script in bench/*.py; do \
	  case $$script in */soak.py) continue ;; esac; \
	  echo "== $$script"; $(VENV)/bin/python $$script || exit 1; \
	done

soak: java venv-dev
	$(VENV)/bin/python scripts/soak.py
	$(VENV)/bin/python -m pytest -q -m soak tests
	HEADRACE_TEST_REQUESTS=10000 $(VENV)/bin/python -m pytest -q tests/operations/test_guard.py
	HEADRACE_TEST_CLUSTER_STEPS=all $(VENV)/bin/python -m pytest -q tests/cluster_faults/test_faults.py
	HEADRACE_TEST_HISTORIES=1000 $(VENV)/bin/python -m pytest -q tests/operators/test_foreign_keys.py
	HEADRACE_TEST_DEMO_FLIGHTS=336776 $(VENV)/bin/python -m pytest -q tests/demo/test_demo_kafka.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@sh scripts/need_java.sh

venv:
	@PYTHON="$(PYTHON)" sh scripts/make_venv.sh $(VENV) demo

venv-dev:
	@PYTHON="$(PYTHON)" sh scripts/make_venv.sh $(VENV) dev
