# Goals of the recipes of docs/recipes.md. Django and the others get an environment of their own. The Makefile includes
# this file.

RECIPES := target/tools/recipes
$(RECIPES)/.ready: recipes/python/requirements.txt scripts/python-environment
	$(call build,recipes-environment,Python environment of the recipes) -- \
		./scripts/python-environment "$(PYTHON)" $(RECIPES) recipes/python/requirements.txt
	@touch $@
recipes/node/node_modules/.ready: recipes/node/package-lock.json

# Needs Python 3.11.
recipes-test: python node kotlin cli $(RECIPES)/.ready recipes/node/node_modules/.ready
	$(call step,recipes-python,Recipes: Django; FastAPI; Celery; Kubernetes) --report pytest {step}/report.xml -- \
		env PYTHONPATH=python $(RECIPES)/bin/pytest --rootdir=. --timeout=600 -o faulthandler_timeout=900 \
		-o junit_family=xunit1 --junitxml={step}/report.xml recipes
	$(call step,recipes-biome,biome for the recipes) --in recipes/node -- \
		../../node/node_modules/.bin/biome check --error-on-warnings .
	$(call step,recipes-nest,Recipes: NestJS; compiled) --in recipes/node -- npx tsc --project nest
	$(call step,recipes-node,Recipes: Express; NestJS) --after recipes-nest $(node-test-runner) \
		$(patsubst %,../%,$(wildcard recipes/node/test/*.test.mjs))
	$(call step,recipes-kotlin,Recipes: the Kotlin package) -- $(MVN) install -Dmaven.test.skip=true
	$(call step,recipes-spring,Recipes: Spring Boot) --after recipes-kotlin \
		--report surefire recipes/spring/target/surefire-reports -- mvn -q -B -ntp -f recipes/spring test \
		-Dredlock.version=$(shell sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"/\1/p' Cargo.toml)
