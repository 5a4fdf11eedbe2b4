# Everything a contributor does. Each target installs what it needs first: Debian packages, a Python environment in
# .venv, crates. Needs only Rust (cargo) and Python 3.10 or newer; root or sudo where a Debian package is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_TARGET_DIR := $(CURDIR)/target
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

.PHONY: help demo test lint rust-test python-test python setup system clean

help:
	@echo "make demo    locks, contention and failures on five private redis-servers, live (about 30 s after the build)"
	@echo "make test    every check: linters, Rust, Python, scenarios, pitfalls, examples"
	@echo "make lint    rustfmt, clippy, ruff, mypy, stubtest"
	@echo "make python  builds the Python package into .venv"
	@echo "make clean   removes everything built"

# The redis-server and a C linker: the only things that do not come from crates.io or PyPI.
system:
	@./scripts/system-packages

# The Python environment; remade when what it needs changes.
$(VENV)/.ready: python/requirements-dev.txt scripts/python-environment
	$(call say,Python environment in .venv)
	@./scripts/python-environment "$(PYTHON)" "$(VENV)" python/requirements-dev.txt
	@touch $@

setup: system $(VENV)/.ready

# The extension is built in the development profile: the same code, a tenth of the build time.
python: setup
	$(call say,Building the Python package (the first build takes some minutes))
	cd python && VIRTUAL_ENV="$(VENV)" $(BIN)/maturin develop --quiet

demo: python
	$(call say,Demo)
	$(BIN)/python demo/demo.py

lint: python
	$(call say,rustfmt and clippy)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(call say,ruff and mypy and stubtest)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd python && $(BIN)/mypy redlock
	cd python && $(BIN)/python -m mypy.stubtest redlock

rust-test: setup
	$(call say,Rust tests: units; real servers; scenarios on Redis and in memory)
	cargo test --package redlock-core --package redlock-tests --quiet

python-test: python
	$(call say,Python tests: sync; asyncio; fork; signals; exit; scenarios)
	$(BIN)/pytest python/tests
	$(call say,Pitfalls: what other locks get wrong; on real servers)
	$(BIN)/pytest tests/pitfalls
	$(call say,Examples and demo)
	$(BIN)/pytest python/examples demo
	$(call say,Packaging: pip install ./python into an empty environment; a wheel without Rust)
	./scripts/check-packaging "$(PYTHON)" "$(BIN)/maturin"

test: lint rust-test python-test
	$(call say,All checks passed)

clean:
	rm -rf target .venv python/redlock/*.so dist
