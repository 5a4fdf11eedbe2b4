# Goals for a release: the packages to publish; see docs/releasing.md. The Makefile includes this file.

PACKAGES := dist
packages-tools: python-tools node-tools kotlin-tools node/test/fixtures/node_modules/.ready
	@./scripts/system-packages packages
	$(made)

# A release in short: compiled in the development profile, for one Python, one Node and one JDK.
packages-trial: python node kotlin packages-tools
	$(call step,packages-native,Packages: compiled) -- python3 -m release.native host target/packages --profile dev --abi abi3
	$(call step,packages-pack,Packages: packed) --after packages-native -- python3 -m release.pack target/packages
	$(call step,packages-smoke,Packages: installed and used without Rust) --after packages-pack -- \
		python3 -m release.smoke target/packages --quick

release-test: packages-tools
	$(call step,release-tests,Packages: tests of what makes them) $(pytest) release/tests tests/emulated

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

# Targets that this kind of machine cannot link are only compiled. The last lines name the parts left out.
packages-all: packages-tools
	$(call say,Packages for every target that can be built here)
	rm -rf $(PACKAGES)
	python3 -m release.native host $(PACKAGES)
	for target in $$(python3 -m release.targets crossed); do \
		python3 -m tests.emulated.std $$target python3 -m release.native $$target $(PACKAGES) --abi abi3; done
	for target in $$(python3 -m release.targets unlinked); do \
		python3 -m tests.emulated.std $$target python3 -m release.toolchain $$target; done
	python3 -m release.pack $(PACKAGES) --verify-crates
	python3 -m release.checks $(PACKAGES)
	$(call say,Installed and used: here; in emulators; their whole suites here)
	python3 -m release.smoke $(PACKAGES)
	python3 -m release.smoke $(PACKAGES) --suites
	python3 -m tests.emulated.elsewhere $(PACKAGES) sid debian11 arm64 musl arm64-musl wine
	$(call say,The same to the byte when built elsewhere)
	python3 -m release.reproduce $(PACKAGES)
