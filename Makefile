# make check is everything that CI does. Each step prints its name; the first that fails ends the run.
#
# Most of its time is that of compiling the tests. vet and staticcheck leave the workspace: its other modules may raise a
# version that the root has, and then all is compiled once more.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

# Every go.mod except that of the tools, whose packages belong to others.
MODULES := $(patsubst %/go.mod,%,$(filter-out ./tools/go.mod,$(shell find . -name go.mod -not -path '*/testdata/*' | sort)))
TOOL    := GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod

# How long each fuzz test runs.
FUZZTIME ?= 20s

step = @printf '\n== %s\n' '$(1)'

.PHONY: check static test race alone rivals cluster fuzz bench compare fmt tidy conformance-deps release
.PHONY: gofmt vet staticcheck govulncheck tidy-diff

# One step after another: tests that wait for real time do not like company. The last step is the one that may be unable to run:
# what it says then is not to be overlooked.
check: static race alone rivals cluster govulncheck
	$(call step,make check: all passed)

# Compilers and linters have memory enough here: they need not collect as often.
static: export GOGC := 400
static: gofmt vet tidy-diff staticcheck

gofmt:
	$(call step,gofmt -l)
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi

vet:
	@for m in $(MODULES); do printf '\n== go vet in %s\n' "$$m"; (cd "$$m" && GOWORK=off go vet ./...); done

tidy-diff:
	@for m in $(MODULES) ./tools; do printf '\n== go mod tidy -diff in %s\n' "$$m"; (cd "$$m" && GOWORK=off go mod tidy -diff); done

staticcheck:
	@for m in $(MODULES); do printf '\n== staticcheck in %s\n' "$$m"; (cd "$$m" && $(TOOL) staticcheck ./...); done

# The database of vulnerabilities is on the network. Where it cannot be reached nothing is known, and that is said.
govulncheck:
	@for m in $(MODULES); do \
		printf '\n== govulncheck in %s\n' "$$m"; \
		status=0; out=$$(cd "$$m" && $(TOOL) govulncheck ./... 2>&1) || status=$$?; \
		printf '%s\n' "$$out"; \
		if [ $$status -eq 0 ]; then continue; fi; \
		case "$$out" in \
		*"fetching vulnerabilities"*) \
			printf '\n!!!! govulncheck DID NOT RUN: its database cannot be reached.\n!!!! Known vulnerabilities were NOT looked for. This is not a failure of the run.\n'; \
			exit 0;; \
		esac; \
		exit $$status; \
	done

# Quick: every module, without the race detector.
test:
	$(call step,go test work)
	go test work

# The README's one test command.
race:
	$(call step,go test -race work)
	go test -race work

# The library as its users get it: without the workspace. What memory a hit and a waiter take is tested only here: the race
# detector has its own. The suite that judges the middleware has run in the step before, on the same packages.
alone:
	$(call step,GOWORK=off go test ./...)
	GOWORK=off go test -vet=off $$(go list ./... | grep -v /conformance)

# The benchmark against the rivals is in no workspace: what it needs would raise versions of the others. Its tests run without
# the race detector, which would measure itself.
rivals:
	$(call step,go test in bench)
	cd bench && GOWORK=off go test -vet=off ./...

# What needs a cluster or a sentinel trio: internal/arch sees to it that the names begin so.
cluster:
	$(call step,STOCKADE_CLUSTER=1 go test -race: the tests of a cluster and a sentinel trio)
	STOCKADE_CLUSTER=1 go test -race -run '^Test(Cluster|Sentinel)' $$(grep -rlE --include='*_test.go' '^func Test(Cluster|Sentinel)' . | xargs dirname | sort -u)

fuzz:
	@for pkg in $$(go list ./...); do \
		list=$$(go test -list '^Fuzz' "$$pkg"); \
		for name in $$(grep '^Fuzz' <<<"$$list" || true); do \
			printf '\n== fuzz %s %s for $(FUZZTIME)\n' "$$pkg" "$$name"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$pkg"; \
		done; \
	done

bench:
	$(call step,go test -bench . ./...)
	go test -run '^$$' -bench . -benchmem ./...

# Compares the benchmarks of two revisions: make compare OLD=HEAD~1 PKG=. BENCH=Hit. What is not committed is not measured.
# They take turns, so that what disturbs the one disturbs the other.
OLD   ?= HEAD~1
NEW   ?= HEAD
PKG   ?= ./...
BENCH ?= .
COUNT ?= 8
BENCHFLAGS ?=
compare:
	$(call step,benchmarks of $(OLD) and $(NEW))
	@dir=$$(mktemp -d); trap 'git worktree remove --force '$$dir'/old; git worktree remove --force '$$dir'/new; rm -rf '$$dir EXIT; \
	git worktree add --quiet --detach $$dir/old $(OLD); git worktree add --quiet --detach $$dir/new $(NEW); \
	for round in $$(seq $(COUNT)); do for side in old new; do \
		printf 'round %s of %s: %s\n' $$round $(COUNT) $$side; \
		(cd $$dir/$$side && go test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) $(PKG)) >>$$dir/$$side.txt; \
	done; done; \
	$(TOOL) benchstat old=$$dir/old.txt new=$$dir/new.txt

# What the test in middleware/conformance needs besides Go: it wants node and npm.
conformance-deps:
	$(call step,npm ci in middleware/conformance/testdata)
	cd middleware/conformance/testdata && npm ci

fmt:
	gofmt -w .

tidy:
	@for m in $(MODULES) ./tools; do printf '\n== go mod tidy in %s\n' "$$m"; (cd "$$m" && GOWORK=off go mod tidy); done

# make release VERSION=v0.1.0: one commit, and a tag for each module that others use. Nothing is pushed. Their go.mod names the
# root's version: replace, which is for this repository, does not count for who requires them.
release:
	@case "$(VERSION)" in v[0-9]*.[0-9]*.[0-9]*) ;; *) echo 'say which: make release VERSION=v0.1.0'; exit 1;; esac
	@test -z "$$(git status --porcelain)" || { echo 'commit first'; exit 1; }
	@for m in extra/*; do (cd $$m && GOWORK=off go mod edit -require=github.com/stockade-cache/stockade@$(VERSION) && GOWORK=off go mod tidy); done
	@sed -i 's/^## Unreleased$$/## $(VERSION)/' CHANGELOG.md
	@git commit --quiet --all --message 'release $(VERSION)'
	@for tag in $(VERSION) $(patsubst %,%/$(VERSION),$(wildcard extra/*)); do git tag $$tag && echo "tagged $$tag"; done
