# Goals that take hours or need other lock libraries: hand-offs with those, long simulation and chaos. The Makefile
# includes this file; paths are those of the repository.

# ---- other lock libraries, on the same locks as ours ----------------------------------------------------------------

# The current version, and one that does not yet record unlocks so that a retry is recognised.
REDISSON := 4.7.0 3.23.5
redisson = redisson $(1)=java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
	-cp 'target/interop/redisson-$(1)/classes:target/interop/redisson-$(1)/lib/*' dev.redlock.interop.Peer;
peers = $(foreach version,$(REDISSON),$(call redisson,$(version))) \
	redis-py=$(BIN)/python tests/interop/python/peer.py; \
	node-redlock=node tests/interop/node/peer.mjs redlock; \
	redis-semaphore=node tests/interop/node/peer.mjs redis-semaphore; redsync=target/interop/redsync
interop = env REDLOCK_PEERS="$(peers)" REDLOCK_CONTENDERS="$(contenders)" \
	cargo test $(rust) --test interop --quiet

tests/interop/node/node_modules/.ready: tests/interop/node/package-lock.json

target/interop/redisson-%/.ready: tests/interop/jvm/pom.xml tests/interop/jvm/src/main/java/dev/redlock/interop/Peer.java
	@rm -rf $(@D) && mkdir -p $(@D)
	$(call build,redisson-$*,A peer: Redisson $*) -- mvn -q -B -ntp -f tests/interop/jvm compile -Dredisson.version=$*
	@touch $@

target/interop/redsync: tests/interop/go/main.go tests/interop/go/go.mod tests/interop/go/go.sum
	$(call build,redsync,A peer: redsync) --in tests/interop/go -- bash -ec 'go vet .; go build -o "$(CURDIR)/$@" .'

interop-tools: python-tools node-tools kotlin-tools tests/interop/node/node_modules/.ready
	@./scripts/system-packages go
	@$(MAKE) --no-print-directory --quiet $(REDISSON:%=target/interop/redisson-%/.ready) target/interop/redsync
	$(made)

interop-test: python node kotlin interop-tools
	$(call step,interop,Other libraries: Redisson; redis-py; node-redlock; redis-semaphore; redsync) -- $(interop)

# As many hand-offs as for the figures in docs/interop.md.
HANDOFFS ?= 10000
interop: python node kotlin interop-tools
	$(call say,Other libraries: $(HANDOFFS) hand-offs for each pair)
	REDLOCK_HANDOFFS=$(HANDOFFS) $(interop) -- turns

SEEDS ?= 100000
FROM ?= 0
sim: rust-tools
	$(call say,Simulation: $(SEEDS) seeds from $(FROM))
	cargo run --package redlock-simulation --bin sim --quiet -- --seeds $(SEEDS) --from $(FROM)

# The campaigns of rust-test and languages-test, as long as for the figures in docs/proof.md: CHAOS_GRANTS in total for
# the campaigns that check mutual exclusion, CHAOS_SECONDS for each of the others. Those that keep exclusion write
# histories for porcupine.
CHAOS_GRANTS ?= 1000000
CHAOS_SECONDS ?= 20
HISTORIES := $(CURDIR)/target/histories
long = cargo test --package redlock-tests --quiet
chaos: python node kotlin porcupine-tools
	$(call say,Chaos: every campaign; each prints the seed that repeats it)
	rm -rf $(HISTORIES)
	REDLOCK_CHAOS_GRANTS=$(CHAOS_GRANTS) REDLOCK_CHAOS_SECONDS=$(CHAOS_SECONDS) REDLOCK_HISTORY=$(HISTORIES) \
		$(long) --test chaos -- --nocapture --test-threads 1
	$(call say,The histories of these campaigns: judged by porcupine)
	$(JUDGE) $(HISTORIES)
	$(call say,Losses: ten thousand leases at their deadline)
	REDLOCK_LOSS_ROUNDS=10 $(long) --test losses -- --nocapture --test-threads 1
	$(call say,Cuts: after every byte; also of new connections and of a quorum)
	REDLOCK_CUT_STRIDE=1 $(long) --test cuts -- --nocapture
	$(call say,All languages in chaos)
	REDLOCK_GRANTS=1000 REDLOCK_CONTENDERS="$(contenders)" $(long) --test languages -- --nocapture on_five_nodes_in_chaos

# porcupine, a checker of linearizability, judges histories of campaigns; the models are in tests/porcupine.
JUDGE := target/porcupine/judge
$(JUDGE): $(wildcard tests/porcupine/*.go) tests/porcupine/go.mod tests/porcupine/go.sum
	$(call build,judge,The judge: tested; built) --in tests/porcupine -- \
		bash -ec 'go vet .; go test -count=1 .; go build -o "$(CURDIR)/$@" .'

porcupine-tools: rust-tools
	@./scripts/system-packages go
	@$(MAKE) --no-print-directory --quiet $(JUDGE)

porcupine: porcupine-tools
	$(call say,Short campaigns: judged by porcupine)
	rm -rf $(HISTORIES)
	REDLOCK_HISTORY=$(HISTORIES) $(long) --test chaos -- --nocapture --test-threads 1
	$(JUDGE) $(HISTORIES)
