# The tasks of this repository. `make` alone prints the targets.
#
# It needs Go, make and a POSIX shell; gcc for the race detector in `make test-race`. The go command
# downloads everything else, in the versions that go.mod and tools/go.mod name.

GO        ?= go
CONFIG    ?= configs/mnist-mlp.yaml
DATA_DIR  ?= data/mnist
DEMO_DIR  ?= runs/demo
GPT_DIR   ?= runs/gpt2-demo
PKG       ?= ./...
BENCH     ?= .
COUNT     ?= 10
TIMEOUT   ?= 10m

# Programs are built without cgo, as they are released. Their commit comes from git here, because the
# go command fails if git does, for example in a checkout of another user.
COMMIT    := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
BUILD     := CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags='-X github.com/symgrad/symgrad/internal/build.stamp=$(COMMIT)'
TOOL      := $(GO) tool -modfile=tools/go.mod
MODULES   := . tools

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

DEMO := --config $(CONFIG) --set data.path=$(DATA_DIR) --set run.output_dir=$(DEMO_DIR) --verify

.PHONY: demo
demo: data build ## train an MLP on MNIST with two ranks on this machine, after checking their gradient
	bin/ddp $(DEMO)

# The last stories are the test set. tail prints from the given line on.
GPT_TEXT  := examples/lm/stories.txt
GPT_SPLIT := 460

.PHONY: demo-gpt
demo-gpt: build ## train a small GPT-2 on stories with two ranks, print its validation loss and a sample; 3 minutes
	@rm -rf "$(GPT_DIR)" && mkdir -p "$(GPT_DIR)"
	@head -n $(GPT_SPLIT) $(GPT_TEXT) > "$(GPT_DIR)/train.txt" && tail -n +$$(($(GPT_SPLIT) + 1)) $(GPT_TEXT) > "$(GPT_DIR)/val.txt"
	bin/symgrad data tokenize --out "$(GPT_DIR)/train" "$(GPT_DIR)/train.txt"
	bin/symgrad data tokenize --out "$(GPT_DIR)/val" "$(GPT_DIR)/val.txt"
	bin/gpt2 --config configs/gpt2-demo.yaml --set data.path="$(GPT_DIR)/train" --set data.val_path="$(GPT_DIR)/val" \
		--set run.output_dir="$(GPT_DIR)" --set checkpoint.dir="$(GPT_DIR)/checkpoints"
	bin/gpt2 eval --all --from "$(GPT_DIR)/checkpoints" --data "$(GPT_DIR)/val"
	bin/gpt2 sample --from "$(GPT_DIR)/checkpoints" --prompt "On Friday" --tokens 120

.PHONY: data
data: ## get the MNIST images: data/mnist, or make data DATA_DIR=...
	@sh scripts/data.sh "$(DATA_DIR)"

.PHONY: build
build: ## build the programs into bin/
	@mkdir -p bin
	@$(BUILD) -o bin/symgrad ./cmd/symgrad
	@$(BUILD) -o bin/ ./examples/ddp ./examples/mlp ./examples/lm ./examples/gpt2 ./examples/resnet ./examples/ring ./examples/nvshmem ./examples/p2p ./examples/jacobi ./examples/comm ./examples/hello

# No test target runs vet: check-vet does.
TEST := $(GO) test -vet=off -count=1 -shuffle=on -timeout=$(TIMEOUT)

# test-hosts alone runs the tests on hosts of namespaces. Under the race detector internal/net/hosts has
# several hosts in one process, and dist/backend has them as processes on the loopback interface.
NO_HOSTS := SYMGRAD_TEST_HOSTS=0

.PHONY: test
test: data ## run the tests without cgo, as programs are released
	CGO_ENABLED=0 $(NO_HOSTS) $(TEST) $(PKG)

# test-race omits slow code without goroutines of its own, package reduce, which shm and sim call, and
# the tests of the conformance suite, which shm and sim run.
NO_RACE := bench/compare|cmd/symgrad|config|examples/(ddp/mnist|ddp/model|gpt2|language|lm|mlp|resnet|resnet/model|resnet/pictures)|machine/machinetest|nn|nn/transformer|internal/(conformance|nnop|compile/(cudagen|lower|program/oracle)|host/(blas|reduce)|net/hostsim|tool/(lint|pins))
# Slow tests of values, in packages whose other tests run the same code on several goroutines.
SEQUENTIAL_TESTS := ^Test(ErrorFeedbackSendsEverythingInTheEnd|CompilingTakesMemoryInProportion|Derivatives|FunctionsAreAccurate|$\
	(LargeProducts|LargeConvolutions|RandomWindows|RandomMaps)EqualTheOracle|(Everything|BatchNorm|Softmax|Gather)EqualsTheOracle|$\
	WireIsTheSameForEveryStage|HookStateGoesOnWhereItWas|VirtualRanksGiveTheBitsOfRealOnes|StagesGiveTheBitsOfStage0ForEveryModel|$\
	SyncBatchNormTrainsAsOnOneRank|ConformanceOfManyRanks|NothingIsWrongWhereNothingIs|EveryRuleTrainsAGorgoniaGraph|$\
	Float(32|64)FollowsPyTorchTo1e[0-9]+|LauncherEndsAJobOfAKilledProcess|$\
	Recompute.*|CloseGivesUpOnAProcessThatDoesNotClose|CloseEndsWhatFits|LoseEndsRequestsAndClose|MessagesOfALostProcessEnd|LossDuringCloseEndsIt)$$
RACE_PKG = $(if $(filter ./...,$(PKG)),$$($(GO) list ./... | grep -vE '/($(NO_RACE))$$'),$(PKG))

# By default the race detector delays the end of each process by a second, and many tests start processes.
.PHONY: test-race
test-race: data ## run the tests under the race detector and with invariants checked
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(NO_HOSTS) $(TEST) -race -tags=invariants -skip='$(SEQUENTIAL_TESTS)' $(RACE_PKG)

# Tests on hosts have Host in their name. EXEC='-exec "sudo -n"' runs the test binaries as root.
HOST_PKG = $$(grep -rl --include='*_test.go' '"github.com/symgrad/symgrad/internal/net/hosttest"' . | xargs -n1 dirname | sort -u)

.PHONY: test-hosts
test-hosts: ## run the tests that make several hosts of this machine; needs root on Linux, see docs/how-to
	@$(if $(EXEC),:,[ "$$(id -u)" = 0 ] || echo "test-hosts: this is not root, so tests on hosts are skipped; EXEC='-exec \"sudo -n\"' uses sudo")
	CGO_ENABLED=0 $(TEST) $(EXEC) -run=Host $(HOST_PKG)

.PHONY: test-long
test-long: data ## run more cases of some tests: worlds, training steps, random draws, kills
	$(NO_HOSTS) sh scripts/long.sh "$(GO)"

.PHONY: check
check: check-format check-vet check-static check-rules check-modules check-generated check-commits ## run all checks except tests

.PHONY: check-format
check-format:
	@files=$$($(TOOL) gofumpt -l .) || exit 1; \
	[ -z "$$files" ] || { echo "$$files"; echo "check: not formatted; run: make fmt"; exit 1; }

# Packages with files for some builds only: with invariants, and for some processors.
INVARIANT = $$(grep -rlE --include='*.go' '^//go:build.*invariants' . | xargs -n1 dirname | sort -u)
PROCESSOR = $$(find . -name '*_a*64*.go' -o -name '*.s' | xargs -n1 dirname | sort -u)

# The last two compile for other processors, and the packages that do not need Linux for other systems. The
# third needs no optimization, because nothing else uses its output.
PORTABLE := ./tensor ./symmetric ./dist ./dist/launch ./ops ./optim ./config ./internal/host/blas ./internal/dl ./internal/sim

.PHONY: check-vet
check-vet:
	CGO_ENABLED=0 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet -tags=invariants $(INVARIANT)
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet -gcflags='-N -l' $(PROCESSOR)
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build $(PORTABLE)

# Fewer garbage collections make staticcheck faster, at the cost of memory.
.PHONY: check-static
check-static:
	CGO_ENABLED=0 GOGC=400 $(TOOL) staticcheck ./...
	CGO_ENABLED=0 GOGC=400 $(TOOL) staticcheck -tags=invariants $(INVARIANT)

.PHONY: check-rules
check-rules:
	CGO_ENABLED=0 $(GO) test -count=1 ./internal/tool/lint ./internal/tool/pins

.PHONY: check-modules
check-modules:
	@for m in $(MODULES); do \
		(cd $$m && $(GO) mod tidy -diff) || { echo "check: $$m/go.mod is not tidy; run: go mod tidy"; exit 1; }; \
	done
	$(GO) mod verify

# Generated files are committed, and generating them again must not change them.
.PHONY: check-generated
check-generated:
	@if command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then \
		before=$$(git diff | cksum); \
		$(GO) generate ./...; \
		[ "$$before" = "$$(git diff | cksum)" ] || { git diff --stat; echo "check: generated files were out of date"; exit 1; }; \
	fi

# The site needs Node 18 or later, and its check Chromium: CHROME=/path/of/it where it is not /usr/bin/chromium.
SITE := cd docs && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent

# COMMITS is arguments of git rev-list: the messages to check, by default that of the last commit.
COMMITS ?= -1 HEAD

.PHONY: check-commits
check-commits:
	@if git rev-parse --git-dir >/dev/null 2>&1; then scripts/hooks/commit-msg --range $(COMMITS); fi

.PHONY: docs
docs: ## render docs/ as a site with search into docs/.vitepress/dist; needs Node
	$(SITE) build

.PHONY: docs-check
docs-check: docs ## open every page of the site in a headless browser; needs Node and Chromium
	$(SITE) check

.PHONY: lint
lint: ## run golangci-lint; its first build takes minutes
	CGO_ENABLED=0 $(GO) tool -modfile=tools/lint/go.mod golangci-lint run ./...

.PHONY: manifests
manifests: ## check the Kubernetes manifests in deploy/ against the types of its API
	cd tools/manifests && CGO_ENABLED=0 $(GO) run . $(abspath $(wildcard deploy/*.yaml))

.PHONY: fmt
fmt: ## format the source
	$(TOOL) gofumpt -w .

.PHONY: bench
bench: ## run benchmarks and compare with the kept ones: make bench PKG=./internal/host/shm BENCH=AllReduce
	@mkdir -p .bench
	CGO_ENABLED=0 $(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=60m $(PKG) | tee .bench/new.txt
	@! grep -q '^FAIL' .bench/new.txt
	@if [ -f .bench/old.txt ]; then $(TOOL) benchstat .bench/old.txt .bench/new.txt; else $(TOOL) benchstat .bench/new.txt; fi

.PHONY: bench-keep
bench-keep: ## keep the last benchmarks for comparison
	cp .bench/new.txt .bench/old.txt

.PHONY: bench-mpi
bench-mpi: ## compare the collectives with Open MPI's and MPICH's; takes minutes on a quiet machine
	bench/mpi.sh

# Tests and programs for a machine with GPUs, which needs no Go. culink needs cgo and a toolkit, and has
# its own script.
GPU_DIR   := bin/dev
GPU_TESTS := ./internal/gpu/cuda ./internal/gpu ./internal/gpu/nccl ./internal/gpu/nvshmem ./internal/gpu/direct ./kernel ./dist/backend \
	./cmd/symgrad ./examples/ring ./examples/jacobi ./examples/comm ./internal/gpu/cublas ./internal/gpu/cudnn ./internal/compile/cudagen ./internal/compile/cudaexec \
	./machine ./nn ./train ./examples/ddp ./examples/mlp ./examples/lm ./examples/gpt2 ./examples/resnet

.PHONY: gpu-tests
gpu-tests: ## build tests and programs for GPUs into bin/dev/, and print how to run them
	@mkdir -p $(GPU_DIR)
	@CGO_ENABLED=0 $(GO) test -c -o $(GPU_DIR)/ $(GPU_TESTS)
	@$(BUILD) -o $(GPU_DIR)/ ./cmd/symgrad ./bench/compare ./examples/ring ./examples/jacobi ./examples/ddp \
		./examples/mlp ./examples/lm ./examples/gpt2 ./examples/resnet
	@echo "SYMGRAD_REQUIRE=cuda bench/tests.sh $(GPU_TESTS:./%=%)"
	@echo "culink/gpu.sh test FILE    # FILE from culink/gpu.sh pack FILE"
	@echo bench/gpu.sh
	@echo bench/train.sh
	@echo bench/models.sh
	@echo "python3 bench/transformers/compare.py --gpt2 $(GPU_DIR)/gpt2"

.PHONY: cover
cover: data ## measure the coverage of the tests; the page is .cover/index.html
	@mkdir -p .cover
	CGO_ENABLED=0 $(GO) test -coverpkg=./... -coverprofile=.cover/profile.txt -timeout=$(TIMEOUT) $(PKG)
	@$(GO) tool cover -html=.cover/profile.txt -o .cover/index.html
	@$(GO) tool cover -func=.cover/profile.txt | tail -n 1

.PHONY: tools
tools: ## build the pinned tools, and have git check commit messages (scripts/hooks)
	@for t in gofumpt staticcheck benchstat; do $(TOOL) -n $$t >/dev/null; done
	git config core.hooksPath scripts/hooks

.PHONY: clean
clean: ## remove the output of make, except data/ and runs/
	rm -rf bin .bench .cover
