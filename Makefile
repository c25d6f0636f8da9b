# The only commands a newcomer needs. `make` alone lists them.

PORT ?= 8000
# What `make serve` serves: a folder, a .gguf file or a hub id. Empty: the demo model, fetched once.
MODEL ?=
# More options for `make serve`, such as ARGS="--api-key secret".
ARGS ?=
# Rounds of `make bench-compare`.
ROUNDS ?= 5
VENV := .venv
PYTHON := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help serve serve-sim test lint sanitize bench bench-compare

help: ## list the targets
	@echo "Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: ## build, fetch the demo model once, and serve it (PORT=8000)
	cargo build --release --bin updraft
	@set -e; model='$(MODEL)'; name=; \
	if [ -z "$$model" ]; then \
	  model=$$(scripts/fetch_demo_model.sh); name='--served-model-name SmolLM2-135M-Instruct smollm2'; \
	fi; \
	exec target/release/updraft serve "$$model" $$name --port $(PORT) $(ARGS)

serve-sim: ## the same on simulated Ascend NPUs
	cargo build --release --bin updraft
	cargo build --release -p acl-sim
	crates/acl-sim/scripts/layout.sh target/release target/acl-sim
	$(MAKE) serve ARGS='--device ascend --cann-path target/acl-sim $(ARGS)'

test: $(VENV)/.tests ## run every test: Rust, then end to end with the demo model
	scripts/fetch_demo_model.sh
	scripts/ensure_prometheus.sh
	cargo build --bin updraft
	cargo build --package acl-sim
	cargo test --workspace
	$(PYTHON) -m pytest tests/python

lint: ## check formatting, clippy and the house rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --quiet --test tidy

sanitize: ## the kernels' tests under the address sanitizer
	scripts/sanitize.sh

bench: $(VENV)/.bench ## measure speed and memory beside other servers (see benches/README.md)
	cargo build --release --bin updraft
	$(PYTHON) benches/compare --quick $(ARGS)

bench-compare: $(VENV)/.bench ## every model and workload beside its fastest peers: an hour and a half (ROUNDS=5, PEERS=all)
	cargo build --release --bin updraft
	$(PYTHON) benches/compare --rounds $(ROUNDS) $(ARGS)

$(VENV)/.tests: tests/python/requirements.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.bench: benches/requirements.txt $(VENV)/.tests
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
