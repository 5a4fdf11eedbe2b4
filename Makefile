# The commands of a contributor; those that only a landing or a release needs are in the files that it includes. Each target first installs its tools: Debian packages (as root or with sudo), a Python
# environment in .venv, npm packages, Maven artifacts, crates. A target of one language needs only that language's tools
# and Rust (cargo).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# maturin, npm and Maven call cargo too: all of them build into this one folder.
export CARGO_TARGET_DIR := $(CURDIR)/target
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
MVN := mvn -q -B -ntp -f kotlin -Dredlock.profile=dev -Dkotlin.compiler.incremental=true
say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

# A step is one command. `make test` runs it even if earlier steps failed, unless it needs those; see scripts/step. A
# target that is called alone stops at its first failed step. Options come before the dashes: `--in FOLDER`,
# `--after STEPS`, `--report RUNNER FILE`.
#   $(call step,NAME,TITLE) -- COMMAND
step = @./scripts/step $(1) --title "$(2)" --target $@ --lane "$(LANE)" --limit $(STEP_SECONDS) --needs "$(filter $(built),$^)"
# A step that builds what other targets need: if it fails, make does not start them.
build = $(step) --build
# The lane of `make test` that calls this make, if any.
LANE :=
# The time-out of a step.
STEP_SECONDS ?= 2400

# Test runners, each with a time-out for every test and a report of the failed ones. Always all packages of `rust`: cargo
# compiles what they need again for another choice, whose features differ.
rust := --package redlock-core --package redlock-tests --package redlock-servers --package redlock-simulation
NEXTEST := target/tools/nextest
nextest = --report nextest target/nextest/$(1)/junit.xml -- \
	$(2) $(NEXTEST)/bin/cargo-nextest nextest run --cargo-quiet --profile $(1)
pytest = --report pytest {step}/report.xml -- $(BIN)/pytest --rootdir=. --timeout=600 -o faulthandler_timeout=900 \
	--continue-on-collection-errors -o junit_family=xunit1 --junitxml={step}/report.xml
node-test-runner = --in node --report node {step}/report.xml -- node --test --import=./test/limits.mjs \
	--test-reporter=dot --test-reporter-destination=stdout \
	--test-reporter=./test/report.mjs --test-reporter-destination={step}/report.xml
scenarios = cargo test $(rust) --test scenarios --quiet -- --host

.PHONY: help demo test check check-test check-lint begin rust-lane python-lane node-kotlin-lane lint docs clean \
	python node kotlin cli cli-test rust-tools nextest-tools python-tools node-tools kotlin-tools rust-lint python-lint node-lint \
	kotlin-lint interop-lint docs-lint scripts-test rust-test model-test python-test node-test kotlin-test languages-test \
	versions-test test-all site site-check recipes-test \
	interop-tools interop-test interop mixed-test model sim chaos porcupine porcupine-tools bench bench-tools bench-build bench-against bench-test \
	release-lint packages-tools packages-trial release-test packages-test packages packages-all

help:
	@echo "make demo    locks, contention and failures on five private redis-servers, live, in three languages"
	@echo "make test    every check: linters, Rust, Python, Node, Kotlin, scenarios, pitfalls, examples, packaging"
	@echo "make check   what to run between two edits of the core: rustfmt, clippy, units, promises, scenarios, a short simulation"
	@echo "make lint    rustfmt, clippy and the linters of each language"
	@echo "make python  builds the Python package into .venv"
	@echo "make node    builds the Node package in node/"
	@echo "make kotlin  builds the Kotlin package in kotlin/target"
	@echo "make cli     builds the command redlock, in target/debug; make cli-test tests it"
	@echo "make docs    the API documentation of all languages"
	@echo "make site    the documentation site, from docs/ and what make docs wrote, in target/site (Python 3.11)"
	@echo "make clean   removes everything built"
	@echo "Each of rust, python, node and kotlin also has a -lint and a -test."
	@echo
	@echo "Before a landing or a release:"
	@echo "make model   every configuration of the protocol's models, through all their states (minutes)"
	@echo "make sim     a hundred thousand simulated runs; SEEDS and FROM choose others (an hour)"
	@echo "make interop ten thousand hand-offs with each other lock library (twenty minutes); HANDOFFS changes that"
	@echo "make versions-test  promises and scenarios on every version of Redis and Valkey that the registries have (twenty minutes)"
	@echo "make mixed-test OTHER=DIR  clients of this checkout and of another one on the same locks"
	@echo "make chaos   three quarters of an hour of failures on real servers, a million grants; CHAOS_GRANTS and CHAOS_SECONDS change that"
	@echo "make porcupine  the short campaigns of make chaos, judged by porcupine (three minutes)"
	@echo "make bench   measures against other lock libraries, in release mode (an hour); SUITES and ROUNDS choose less"
	@echo "make bench-against OTHER=DIR  measures against another checkout in which make bench-build ran, in turns"
	@echo "make packages  what pip, npm and Maven install, for this kind of machine, installed and used without Rust (ten minutes)"
	@echo "make packages-all  the same for every target that can be built here, in emulators; whole suites (an hour)"
	@echo "make test-all  make test, bench-test, recipes-test, packages-all, versions-test, interop, model, sim and chaos (hours)"
	@echo "make recipes-test  the recipes of docs/recipes.md, in their frameworks (three minutes)"

# ---- tools: what does not come from crates.io, PyPI, npm or Maven -------------------------------------------------

rust-tools:
	@./scripts/system-packages

python-tools: rust-tools
	@./scripts/system-packages python
	@$(MAKE) --no-print-directory --quiet $(VENV)/.ready

# Made again when its requirements change.
$(VENV)/.ready: python/requirements-dev.txt scripts/python-environment
	$(call build,python-environment,Python environment in .venv) -- \
		./scripts/python-environment "$(PYTHON)" "$(VENV)" python/requirements-dev.txt
	@touch $@

# cargo-nextest comes from PyPI, into an environment of its own. The Rust tests need nothing else from Python.
nextest-tools: rust-tools
	@./scripts/system-packages python
	@$(MAKE) --no-print-directory --quiet $(NEXTEST)/.ready
	$(made)

$(NEXTEST)/.ready: scripts/nextest.txt scripts/python-environment
	$(call build,nextest,cargo-nextest in $(NEXTEST)) -- ./scripts/python-environment "$(PYTHON)" $(NEXTEST) scripts/nextest.txt
	@touch $@

node-tools: rust-tools
	@./scripts/system-packages node
	@$(MAKE) --no-print-directory --quiet node/node_modules/.ready

# package-lock.json pins what these packages need, too: a release is built and checked with the same files everywhere.
node/node_modules/.ready: node/package-lock.json
node/test/fixtures/node_modules/.ready: node/package.json node/test/fixtures/package-lock.json
%/node_modules/.ready:
	$(call build,npm-$(subst /,-,$*),npm packages of $*) --in $* -- \
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

kotlin-tools: rust-tools
	@./scripts/system-packages kotlin

# ---- packages: in the development profile, which builds the same code in a tenth of the time ----------------------

python: python-tools
	$(call build,python,Building the Python package (the first build takes some minutes)) --in python -- \
		env VIRTUAL_ENV="$(VENV)" $(BIN)/maturin develop --quiet
	$(made)

node: node-tools
	$(call build,node,Building the Node package) --in node -- npm run --silent build:dev
	$(made)

kotlin: kotlin-tools
	$(call build,kotlin,Building the Kotlin package (the first build takes some minutes)) -- $(MVN) test-compile
	$(made)

cli: rust-tools
	$(call build,cli,Building the command redlock) -- cargo build --quiet --package redlock-cli
	$(made)

# ---- checks ---------------------------------------------------------------------------------------------------------

rust-lint: rust-tools
	$(call step,rustfmt,rustfmt) -- cargo fmt --all --check
	$(call step,imports,Imports inside the core and the bindings) -- ./scripts/imports
	$(call step,clippy,clippy) -- cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(call step,clippy-shuttle,clippy for the interleavings) -- \
		cargo clippy --package redlock-core --features shuttle --tests --quiet -- -D warnings

python-lint: python
	$(call step,ruff,ruff) -- $(BIN)/ruff check .
	$(call step,ruff-format,ruff format) -- $(BIN)/ruff format --check .
	$(call step,mypy,mypy) --in python -- $(BIN)/mypy redlock
	$(call step,stubtest,stubtest) --in python -- $(BIN)/python -m mypy.stubtest redlock

node-lint: node node/test/fixtures/node_modules/.ready
	$(call step,biome,biome) --in node -- npx biome check --error-on-warnings .
	$(call step,tsc,tsc) --in node -- bash -ec 'node scripts/build.mjs --javascript; npx tsc --project test'
	$(call step,biome-packages,biome for the packages) --in node -- \
		npx biome check --config-path=. ../cli/npm ../release/consumers/node ../release/tests/asked.cjs

kotlin-lint: kotlin-tools
	$(call step,ktlint,ktlint) -- $(MVN) ktlint:check

# The builds of the Java and Go peers treat warnings as errors.
interop-lint: node-tools interop-tools
	$(call step,clippy-peers,clippy for the peers) -- cargo clippy --workspace --test interop --quiet -- -D warnings
	$(call step,biome-peers,biome for the peers) --in node -- npx biome check --config-path=. ../tests/interop/node/peer.mjs
	$(call step,gofmt,gofmt for the peers and the judge) -- \
		bash -ec 'files=$$(gofmt -l tests/interop/go tests/porcupine); echo "$$files"; test -z "$$files"'

# These checks read sources only.
docs-lint: site-check
	$(call step,options,Options: the list; its page; the sources) -- ./scripts/options
	$(call step,troubleshooting,Trouble-shooting: an entry for each error and event) -- ./scripts/troubleshooting

release-lint:
	$(call step,release-lint,One version everywhere; the workflows) -- python3 -m release.lint

# reading-lint: linters that write nothing. writing-lint: linters that write to node/dist or kotlin/target.
reading-lint := rust-lint python-lint interop-lint release-lint docs-lint
writing-lint := node-lint kotlin-lint
lint: $(reading-lint) $(writing-lint)

# Tests of the scripts, of `make test` itself, and of the benchmark's report.
scripts-test: python-tools
	$(call step,scripts-tests,Tests of the scripts) $(pytest) scripts/tests bench/test_report.py

rust-test: nextest-tools
	$(call step,rust-tests,Rust tests: units; real servers; simulation; short chaos) $(call nextest,rust-tests) $(rust)
	$(call step,scenarios,Rust: the scenarios on Redis and in memory) -- cargo test $(rust) --test scenarios --quiet
	$(call step,doc-tests,Rust: examples in the documentation) -- cargo test $(rust) --package redlock-docs --doc --quiet
	$(call step,interleavings,Rust: interleavings of threads; chosen by a scheduler) $(call nextest,interleavings) \
		--package redlock-core --features shuttle --lib interleavings

# Every version in the package registries, two minutes each.
versions-test: rust-tools kotlin-tools
	$(call say,Versions of Redis and Valkey: promises; fair and read/write locks; scenarios)
	for program in $$(./scripts/redis-versions "$(PYTHON)"); do \
		printf '\n-- %s\n' "$$(basename "$$program")"; \
		REDLOCK_REDIS_SERVER=$$program cargo test --package redlock-tests --quiet \
			--test promise --test fair --test read_write; \
		REDLOCK_REDIS_SERVER=$$program cargo test --package redlock-tests --quiet --test scenarios; \
	done

# The configurations that take seconds. A configuration that must break prints a shortest trace.
model-test: nextest-tools
	$(call step,model,Model check: the small configurations) -- cargo test --package redlock-model --test model --quiet
	$(call step,model-reductions,Model check: its reductions) $(call nextest,model-reductions) --package redlock-model

model: rust-tools
	$(call say,Model check: every configuration)
	cargo test --package redlock-model --test model --quiet -- --all

python-test: python
	$(call step,python-tests,Python tests: sync; asyncio; fork; signals; exit) $(pytest) python/tests
	$(call step,threads-scenarios,Python: the scenarios with threads) -- \
		$(scenarios) "$(BIN)/python python/tests/scenario_host.py sync"
	$(call step,gevent-scenarios,Python: the scenarios with greenlets) -- \
		$(scenarios) "$(BIN)/python python/tests/scenario_host.py gevent"
	$(call step,asyncio-scenarios,Python: the scenarios with asyncio) -- \
		$(scenarios) "$(BIN)/python python/tests/scenario_host.py asyncio"
	$(call step,pitfalls,Pitfalls: what other locks get wrong; on real servers) $(pytest) tests/pitfalls
	$(call step,python-examples,Python examples) $(pytest) python/examples
	$(call step,python-source,pip install ./python into an empty environment) -- ./scripts/check-python-source "$(PYTHON)"

# The tests of the Node package that Bun and Deno run too: they need no option of Node.
in-both := abort lock read_write semaphore validation
node-tests = $(1:%=./test/%.test.mjs)

node-test: node node/test/fixtures/node_modules/.ready
	$(call step,node-tests,Node tests: locks; abort; loss; processes; worker threads; test runners; Bun and Deno; examples) \
		$(node-test-runner) $(patsubst node/%,%,$(wildcard node/test/*.test.mjs node/examples/*.test.mjs))
	$(call step,node-scenarios,Node: the scenarios) -- $(scenarios) "node node/test/scenario_host.mjs"
	$(call step,bun-scenarios,Bun: the scenarios) -- $(scenarios) "node node/test/hosts/run.mjs Bun run node/test/scenario_host.mjs"
	$(call step,deno-scenarios,Deno: the scenarios) -- $(scenarios) "node node/test/hosts/run.mjs Deno run node/test/scenario_host.mjs"
	$(call step,bun-tests,Bun: tests of the Node package) --in node -- \
		node test/hosts/run.mjs Bun test $(call node-tests,$(in-both) loss)
	$(call step,deno-tests,Deno: tests of the Node package) --in node -- \
		node test/hosts/run.mjs Deno test $(call node-tests,$(in-both) errors)
	$(call step,node-source,npm install ./node into an empty folder) -- ./scripts/check-node-source

kotlin-test: kotlin
	$(call step,kotlin-tests,Kotlin tests: locks; cancellation; loss; Java; processes; examples) \
		--report surefire kotlin/target/surefire-reports -- $(MVN) surefire:test
	$(call step,kotlin-scenarios,Kotlin: the scenarios) -- $(scenarios) "scripts/kotlin-run dev.redlock.ScenarioHostKt"

cli-test: cli nextest-tools
	@./scripts/system-packages node
	$(call step,cli-tests,redlock on the command line: leases; looks; failures; exec) \
		$(call nextest,cli-tests) --package redlock-cli
	$(call step,cli-source,redlock from the sources with cargo; pip; npm) -- ./scripts/check-cli-source "$(PYTHON)"

# A contender for each language; all of them acquire the same lock.
contenders = python sync=$(BIN)/python python/tests/contender.py sync; \
	python asyncio=$(BIN)/python python/tests/contender.py asyncio; \
	node=node node/test/contender.mjs; kotlin=scripts/kotlin-run dev.redlock.ContenderKt

languages-test: nextest-tools python node kotlin
	$(call step,languages,All languages fight for one lock: on one node; on five; with nodes in trouble) \
		$(call nextest,languages,env REDLOCK_CONTENDERS="$(contenders)") $(rust) --test languages
	$(call step,demo,The demo) $(pytest) demo

# Clients of two versions on one lock. OTHER is the folder of another checkout in which `make python node` ran.
mixed-test: python node kotlin
	$(call say,Clients of another version fight for the same locks)
	REDLOCK_CONTENDERS="$(contenders); other python sync=$(OTHER)/.venv/bin/python $(OTHER)/python/tests/contender.py sync; \
		other python asyncio=$(OTHER)/.venv/bin/python $(OTHER)/python/tests/contender.py asyncio; \
		other node=node $(OTHER)/node/test/contender.mjs" \
		cargo test --package redlock-tests --test languages --quiet -- --nocapture

# Goals that only a landing or a release needs: hours of tests; packages; recipes; benchmarks.
include tests/long.mk release/release.mk recipes/recipes.mk bench/bench.mk

# For a contributor between two edits of the core. clippy computes while the tests wait. every_known_fault_is_found is
# left out: it takes longer if the edit shifts the seeds that find the faults.
check: nextest-tools
	@$(MAKE) $(side-by-side) --keep-going --jobs=2 check-test check-lint

check-test:
	$(call step,rust-quick,Units and promises) $(call nextest,rust-quick) $(rust) --lib --test promise
	$(call step,scenarios,The scenarios on Redis and in memory) -- cargo test $(rust) --test scenarios --quiet
	$(call step,rust-simulation,A short simulation) $(call nextest,rust-simulation,env REDLOCK_SIM_SEEDS=500) $(rust) \
		--test simulation -- --skip every_known_fault_is_found

check-lint:
	$(call step,rustfmt,rustfmt) -- cargo fmt --all --check
	$(call step,imports,Imports inside the core and the bindings) -- ./scripts/imports
	$(call step,clippy,clippy) -- cargo clippy --workspace --all-targets --quiet -- -D warnings

# `make test` waits most of the time: for leases to end, for servers and processes to start. So it builds the packages
# once and then runs three lanes in parallel. A lane makes its targets in turn, each with a make of its own, and prints
# its output at its end. All targets that write to node/dist or kotlin/target are in the last lane. The other lanes run
# programs from there, so a file that is already right is not written again.
#
# A failure ends neither the run nor its lane, so the exit codes of the makes below are ignored. scripts/failures then
# decides whether the run passed. A target or lane without a result counts as failed.
LANES := target/lanes
begin:
	@rm -rf $(LANES)
	@mkdir -p $(LANES)
	-@./scripts/system-packages python node kotlin packages go

built := nextest-tools python node kotlin cli interop-tools packages-tools
# The last line of each recipe of $(built): in a lane, it notes that the target was made.
made = $(if $(LANE),@touch $(LANES)/$@.made)
side-by-side = --no-print-directory --output-sync=target
lane = +@for target in $(in-$@); do \
		$(MAKE) --no-print-directory LANE=$@ $(built:%=--old-file=%) $$target || \
			./scripts/step $$target --title "all of its steps" --target $$target --lane $@ --unmade; \
	done; printf '%(%s)T\n' -1 >> $(LANES)/$@

# packages-trial is behind cli-test: it builds the command `redlock` as packages have it, in the place of the one that
# these tests run.
in-rust-lane := rust-test scripts-test model-test
in-python-lane := $(reading-lint) python-test languages-test interop-test
in-node-kotlin-lane := $(writing-lint) node-test kotlin-test release-test cli-test packages-trial
lanes := rust-lane python-lane node-kotlin-lane
$(lanes):
	$(lane)

# The makes within a lane run one target at a time, although they inherit --jobs.
ifneq ($(filter %-lane,$(LANE)),)
.NOTPARALLEL:
endif

test: begin
	-@$(MAKE) $(side-by-side) --keep-going --jobs=2 LANE=built $(built)
	$(call say,Three lanes side by side)
	@printf '%(%s)T Three lanes side by side\n' -1 >> $(LANES)/built
	-@$(MAKE) $(side-by-side) --keep-going --jobs=3 $(lanes)
	@printf '%(%s)T\n' -1 >> $(LANES)/built
	@./scripts/failures --made "$(built)" --lanes "$(lanes)"

# All tests, also those that take hours.
test-all: test bench-test recipes-test packages-all versions-test interop model sim chaos

demo: python node kotlin
	$(call say,Demo)
	$(BIN)/python demo/demo.py

# zensical, which builds the site, and pdoc, in an environment of their own. They need Python 3.11.
SITE := target/tools/site
$(SITE)/.ready: scripts/site.txt scripts/python-environment
	$(call build,site-environment,Python environment of the site) -- \
		./scripts/python-environment "$(PYTHON)" $(SITE) scripts/site.txt
	@touch $@

docs: node-tools kotlin-tools $(SITE)/.ready
	cargo doc --no-deps --quiet --package redlock-core
	cd node && npm run --silent docs
	$(MVN) dokka:dokka
	rm -rf target/python-docs
	$(SITE)/bin/python scripts/python-reference target/python-docs

site: $(SITE)/.ready bench/.venv/.ready
	$(call say,The site: built strictly; links and anchors; nothing from other servers)
	rm -rf target/plots && $(BENCH)/bin/python bench/plots.py target/plots
	./scripts/site $(SITE)/bin/zensical

# The checks that need no tool.
site-check:
	$(call step,site,The pages of the site: navigation; links; snippets; pictures) -- ./scripts/site

clean:
	rm -rf target .venv python/redlock/*.so dist node/dist node/node_modules node/docs node/test/fixtures/node_modules kotlin/target \
		tests/interop/node/node_modules recipes/node/node_modules recipes/node/nest/dist recipes/spring/target
