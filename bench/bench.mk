# Goals of the benchmarks. Other libraries get environments of their own, apart from those of the build and the tests.
# The Makefile includes this file.

BENCH := $(CURDIR)/bench/.venv
SUITES ?= pairs,growth,quorum,handoff,herd,fair,shared,watchdog,names
ROUNDS ?= 7
bench/.venv/.ready: bench/requirements.txt scripts/python-environment
	$(call build,bench-environment,Python environment of the benchmarks) -- \
		./scripts/python-environment "$(PYTHON)" "$(BENCH)" bench/requirements.txt
	@touch $@
bench/node/node_modules/.ready: bench/node/package-lock.json

bench-tools: python-tools node-tools kotlin-tools bench/.venv/.ready bench/node/node_modules/.ready
	$(made)

# In the development profile, and just long enough to see that everything runs.
bench-test: python node bench-tools
	$(call step,bench-rust,Benchmarks: of Rust; compiled) -- cargo build --quiet --package redlock-bench
	$(call step,bench-kotlin,Benchmarks: the Kotlin package; as make kotlin compiled it) -- $(MVN) jar:jar install:install
	$(call step,bench-jvm,Benchmarks: of the JVM; compiled) --after bench-kotlin -- mvn -q -B -ntp -f bench/jvm package
	$(call step,bench-short,Benchmarks: a short form; only whether they run) --after "bench-rust bench-jvm" -- \
		env PYTHONPATH=python BENCH_RUST=target/debug/bench-contender $(BENCH)/bin/python bench/run.py --smoke

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

# OTHER is the folder of another checkout in which `make bench-build` ran.
bench-against: bench-build
	$(BENCH)/bin/python bench/against.py $(OTHER) --rounds $(ROUNDS)
