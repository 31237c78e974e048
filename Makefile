# What a developer, or someone who just wants to see it, runs. Everything lives in one folder, which
# "make clean" removes: .cerebro here, or one under /var/lib/cerebro-db where root's server, which
# runs as postgres, cannot read this clone.

SETUP := scripts/setup
STATE = $(shell $(SETUP) --where)
BIN = $(STATE)/venv/bin
# Nothing of it stays in the folders of the sources.
export PYTHONPYCACHEPREFIX = $(STATE)/pycache
CEREBRO = CEREBRO_HOME="$(STATE)/home" "$(BIN)/cerebro"
PYTHON = CEREBRO_HOME="$(STATE)/home" "$(BIN)/python"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test fuzz chaos check docs format bench paper start stop psql clean

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 14

demo: start ## train 16 configurations on scikit-learn's digits, in SQL
	@$(SETUP)
	@$(PYTHON) demo/run.py

test: ## run all tests, side by side on the cores; ARGS="-k ..." goes to pytest
	@$(SETUP) --torch
	@"$(BIN)/pytest" -n auto --maxprocesses=4 --dist=loadfile $(ARGS)

fuzz: ## hand 100,000 damaged models, parameters and states to the checks; FUZZ_INPUTS=... for another number
	@$(SETUP) --torch
	@FUZZ_INPUTS=$(or $(FUZZ_INPUTS),100000) "$(BIN)/pytest" tests/fuzz --timeout=7200 $(ARGS)

chaos: ## kill what trains 100 times, and interrupt calls 40 times; ARGS="--kills N --stops N --seed S ..." goes to the test
	@$(SETUP)
	@$(PYTHON) chaos/run.py $(ARGS)

check: ## lint, check the types, the layers, and which Python the server needs
	@$(SETUP)
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/mypy"
	@"$(BIN)/lint-imports"
	@"$(BIN)/vermin" --quiet --no-tips --target=3.6- --eval-annotations --violations cerebro_db/relay udfs sql

docs: ## build the documentation as a site that one can search, in site/; a link that leads nowhere fails
	@$(SETUP) --docs
	@NO_MKDOCS_2_WARNING=1 "$(STATE)/docs/bin/mkdocs" build --strict
	@echo "site/index.html"

format: ## let ruff format the sources
	@$(SETUP)
	@"$(BIN)/ruff" format .
	@"$(BIN)/ruff" check --fix .

bench: ## measure against the peers; ARGS="..." goes to the benchmark
	@$(SETUP)
	@$(PYTHON) benchmarks/run.py $(ARGS)

paper: ## compare the strategies, write docs/comparison.md and its pictures; ARGS="..." goes to the benchmark
	@$(SETUP)
	@$(SETUP) --docs
	@$(PYTHON) -m benchmarks.paper --json "$(STATE)/paper.json" --document $(ARGS)
	@"$(STATE)/docs/bin/python" benchmarks/paper/pictures.py "$(STATE)/paper.json" docs/images

start: ## start the embedded server, with Cerebro-DB in its database
	@$(SETUP)
	@$(CEREBRO) server start
	@$(CEREBRO) install --dsn "$$($(CEREBRO) server dsn)"

stop: ## stop the embedded server
	@$(CEREBRO) server stop

psql: start ## open psql on it
	@$(CEREBRO) server psql

clean: ## stop the server and remove it, its data and the virtual environment
	@if [ -x "$(BIN)/cerebro" ]; then $(CEREBRO) server destroy --yes; fi
	@rm -rf "$(STATE)" .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis site
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@rmdir /var/lib/cerebro-db 2>/dev/null || true
