# Thin: every target is a command that works when pasted.
.PHONY: verify fix test sim cluster
PATH := $(CURDIR)/.venv/bin:$(PATH)
SEED ?= 1

verify: ## reads only
	scripts/venv dev
	ruff format --check
	ruff check
	mypy
	lint-imports
	pytest tests -m "not slow and not long and not java"

fix: ## writes
	scripts/venv dev
	ruff format
	ruff check --fix

test:
	scripts/test

sim: ## make sim SEED=3053
	scripts/simulate --seed $(SEED)

cluster:
	scripts/cluster up
