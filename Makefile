# Weir's commands. `make demo` and `make test` are the two that a newcomer needs.
#
# Everything is built in one profile (release): a debug build of Cranelift takes minutes for one module, and the tests run
# the code that is shipped.

FILTERS := discardcloudservice endpoints forwardkubesvctraffic inclusterconfig masterservice nodeportaddresses \
           nodeportisolation serviceenvupdater servicetopology
TARGET  := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
GUEST   := wasm32-wasip2
RELEASE := $(TARGET)/release
CI      ?=
, := ,

# What runs on this machine is built by one selection of packages. Cargo resolves features for the packages that it is
# given: another selection would compile kube, hyper-rustls and wasmtime again with other features.
HOST := -p weir -p weir-tests -p weir-operator

.PHONY: build shipped otlp modules image dist dist-aarch64 sbom neon neon-parts templates cargo-parts go-parts test test-shipped test-checked controlplane controllers registry deploy-tools traefik crd converge differential permissions upgrade kills lives file-operations views soak replay demo node-parts kubernetes node conformance conformance-parts conformance-short bench bench-document nginx browser fuzz miri check-format lint docs docs-tables deny rust-version schema schema-check schedules guest-target clean

# Splits a program of a folder from its debug information, which lies beside it.
split = sh deploy/release/split.sh $(1)/$(2) $(1)/stripped && mv $(1)/stripped/* $(1)/

build: modules ## target/release: weir and weir-operator, their debug information beside them; target/modules/<filter>.wasm
	cargo build --release --locked $(HOST) --bins
	$(call split,$(RELEASE),weir)
	$(call split,$(RELEASE),weir-operator)

# What images and archives contain. Its last step takes three minutes of one core, so that `build` does without it.
SHIPPED := $(TARGET)/shipped
shipped: modules ## target/shipped: the same programs, optimised across crates
	cargo build --profile shipped --locked $(HOST) --bin weir --bin weir-operator
	$(call split,$(SHIPPED),weir)
	$(call split,$(SHIPPED),weir-operator)

# For the tests of traces, and for users of traces. `build` restores the daemon without them.
otlp: ## target/otlp/weir: the daemon with traces
	cargo build --release --locked $(HOST) --features weir/otlp --bin weir
	@mkdir -p $(TARGET)/otlp
	cp $(RELEASE)/weir $(TARGET)/otlp/weir

modules: guest-target
	cargo build --profile module --locked --target $(GUEST) $(FILTERS:%=-p weir-filter-%) -p weir-guest
	@mkdir -p $(TARGET)/modules
	@for filter in $(FILTERS); do cp $(TARGET)/$(GUEST)/module/$$filter.wasm $(TARGET)/modules/; done
	@cp $(TARGET)/$(GUEST)/module/guest.wasm $(TARGET)/

# The libraries of the image are those of this machine, which has to be a Debian.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
image: shipped ## target/image/oci/image: the image as an OCI layout; target/image/oci/debug: its debug information, as an artefact; target/image/operator: those of weir-operator
	sh deploy/release/layers.sh $(SHIPPED)/weir $(TARGET)/modules $(TARGET)/image/layers
	sh deploy/release/oci.sh $(TARGET)/image/layers deploy/Dockerfile $(SHIPPED)/weir.debug $(VERSION) $(TARGET)/image/oci
	sh deploy/release/layers.sh $(SHIPPED)/weir-operator "" $(TARGET)/image/operator/layers
	sh deploy/release/oci.sh $(TARGET)/image/operator/layers deploy/operator/Dockerfile $(SHIPPED)/weir-operator.debug $(VERSION) $(TARGET)/image/operator/oci

# Debian's cross compiler and qemu, unpacked in the target folder where they are not installed. What is built for aarch64 has a
# folder of its own: it would make the next build for this machine build its tools again.
CROSS   := $(TARGET)/dist/cross
AARCH64 := aarch64-unknown-linux-gnu
FOR_AARCH64 = sh deploy/release/aarch64.sh $(CROSS)
$(CROSS)/bin/cc:
	sh deploy/release/cross.sh $(abspath $(CROSS))

NEON = $(FOR_AARCH64) cargo test --release --locked --target $(AARCH64) --target-dir $(TARGET)/dist/target -p weir-document --lib
neon-parts: $(CROSS)/bin/cc
	@rustup target list --installed | grep -qx $(AARCH64) || rustup target add $(AARCH64)
	$(NEON) --no-run

neon: neon-parts ## the tests of the NEON scanner, on qemu
	$(NEON) json::scan

dist-aarch64: neon
	$(FOR_AARCH64) cargo build --profile shipped --locked --target $(AARCH64) --target-dir $(TARGET)/dist/target -p weir --bin weir
	$(CROSS)/bin/objcopy --strip-all $(TARGET)/dist/target/$(AARCH64)/shipped/weir $(TARGET)/dist/weir-aarch64
	$(CROSS)/bin/qemu -L $(CROSS)/sysroot $(TARGET)/dist/weir-aarch64 --version

CYCLONEDX := $(TARGET)/tools/bin/cargo-cyclonedx
sbom: ## target/dist/weir.cdx.json: what the daemon is built from
	@[ -x $(CYCLONEDX) ] || cargo install --locked --quiet --root $(TARGET)/tools --target-dir $(TARGET)/tools/build --debug cargo-cyclonedx@0.5.9
	mkdir -p $(TARGET)/dist
	sh deploy/release/sbom.sh $(abspath $(CYCLONEDX)) $(abspath $(TARGET))/dist/weir.cdx.json

dist: shipped dist-aarch64 sbom ## target/dist: archives for x86_64 and aarch64, the SBOM, and SHA256SUMS
	sh deploy/release/archive.sh $(SHIPPED)/weir $(TARGET)/modules weir-$(VERSION)-$(shell uname -m)-linux $(TARGET)/dist
	sh deploy/release/archive.sh $(TARGET)/dist/weir-aarch64 $(TARGET)/modules weir-$(VERSION)-aarch64-linux $(TARGET)/dist
	cd $(TARGET)/dist && sha256sum weir-$(VERSION)-*.tar.gz weir.cdx.json > SHA256SUMS && cat SHA256SUMS

# Most tests wait for something else than a processor.
TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))

# Go's builds go on beside cargo's, which leave a processor idle for minutes: the last crates are compiled one after another.
CARGO_PARTS := check-format schema-check deny rust-version otlp build lint docs test-checked schedules
GO_PARTS := controlplane controllers registry deploy-tools traefik browser
cargo-parts:
	$(MAKE) --no-print-directory -j1 $(CARGO_PARTS)
go-parts:
	$(MAKE) --no-print-directory -j1 $(GO_PARTS)

test: ## formatting, dependencies, the protobuf table, clippy and rustdoc with warnings denied, every test
	$(MAKE) --no-print-directory -j2 cargo-parts go-parts
	@mkdir -p $(TARGET); for part in $(BESIDE_TESTS); do chrt --idle 0 $(MAKE) --no-print-directory $$part >$(TARGET)/$$part.log 2>&1 & done
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --release --locked --workspace

# What is built while tests wait, which leaves the processors idle for half of their time. It gets no other time: a filter's is limited.
BESIDE_TESTS ?=

# Before a release; `make node WEIR_PROGRAMS=target/shipped` likewise.
test-shipped: build shipped controlplane controllers registry deploy-tools browser traefik ## the tests of the built programs, with those that are shipped
	WEIR_PROGRAMS=$(abspath $(SHIPPED)) RUST_TEST_THREADS=$(TEST_THREADS) cargo test --release --locked --workspace --test behaviour --test attack --test real --test deploy --test operator

# Release builds wrap on overflow and have no debug assertions. The crates that need no wasmtime are tested with both.
CHECKED := weir-document weir-kube weir-filter weir-edge weir-yaml $(FILTERS:%=weir-filter-%)
test-checked: ## the tests of the document engine, the SDK and the filters with debug assertions and overflow checks
	cargo test --profile checked --locked $(CHECKED:%=-p %)

# shuttle would turn on features of what the daemon is built with, so this is a workspace of its own: a CPU minute the first time.
schedules: ## what the daemon locks and publishes, in many orders of threads; races that are put back must be found
	cargo test --locked --manifest-path tests/schedules/Cargo.toml --target-dir $(TARGET)/schedules

# Without it the tests against a real API server say that they are skipped; where CI is set they fail instead.
controlplane: ## kube-apiserver, etcd and Go clients for the tests: minutes the first time (needs Go)
	@if ! command -v go >/dev/null; then sh tests/skip.sh controlplane "Go is not installed"; \
	elif ! (cd tests/controlplane && timeout 600 go mod download); then sh tests/skip.sh controlplane "its Go modules cannot be had"; \
	else sh tests/controlplane/build.sh $(abspath $(TARGET))/controlplane; fi

controllers: controlplane ## kubelet, kube-controller-manager and others for the tests: minutes the first time (needs Go)
	@if ! command -v go >/dev/null; then sh tests/skip.sh controllers "Go is not installed"; \
	elif ! (cd tests/controlplane && timeout 600 go mod download); then sh tests/skip.sh controllers "their Go modules cannot be had"; \
	else sh tests/controlplane/build.sh $(abspath $(TARGET))/node/bin ./node; fi

traefik: ## an ingress controller for the tests of the operator: minutes the first time (needs Go)
	@if ! command -v go >/dev/null; then sh tests/skip.sh traefik "Go is not installed"; \
	elif ! (cd tests/traefik && timeout 600 go mod download github.com/traefik/traefik/v3); then sh tests/skip.sh traefik "its Go modules cannot be had"; \
	else sh tests/traefik/build.sh $(abspath $(TARGET))/traefik; fi

crd: build ## rewrites deploy/operator/crd.yaml from the types of the operator, and the chart's copies
	$(RELEASE)/weir-operator crd > deploy/operator/crd.yaml
	cp deploy/operator/crd.yaml deploy/operator/roles.yaml deploy/helm/weir/files/operator/

registry: ## registries (distribution, zot), cosign and oras for the tests: minutes the first time (needs Go)
	@if ! command -v go >/dev/null; then sh tests/skip.sh registry "Go is not installed"; \
	elif ! (cd tests/registry && timeout 600 go list -deps tool && cd zot && timeout 600 go list -deps -tags containers_image_openpgp tool) >/dev/null; then sh tests/skip.sh registry "its Go modules cannot be had"; \
	else sh tests/registry/build.sh $(abspath $(TARGET))/registry; fi

deploy-tools: ## helm and promtool for the tests of deploy/: minutes the first time (needs Go and Debian's packages)
	@if ! command -v go >/dev/null; then sh tests/skip.sh deploy-tools "Go is not installed"; \
	elif ! (cd tests/deploy && timeout 600 go list -deps tool >/dev/null); then sh tests/skip.sh deploy-tools "their Go modules cannot be had"; \
	else sh tests/deploy/build.sh $(abspath $(TARGET))/deploy; fi

# The tools stay in the target folder.
templates: build ## a new project in Go, JavaScript, Python and C: built and tested (skipped aloud where a language's tools cannot be had)
	cargo test --release --locked $(HOST) --test behaviour -- --ignored --exact --nocapture behaviour::authors::new_projects_of_other_languages_build_and_pass

demo: build ## a small edge cluster, Weir in front of it, and what a reload, another pool and an outage are to kube-proxy
	$(RELEASE)/weir-demo $(if $(CI),--end)

node-parts: build controllers
	cd tests/node/coredns && go build -p 2 -ldflags "-s -w" -o $(abspath $(TARGET))/node/bin/coredns .
	sh tests/node/packages.sh $(abspath $(TARGET))/node/debian

# Another release of Kubernetes for the control plane and the conformance suite: 1.36, or a patch of it. kubelet stays.
KUBERNETES ?=
kubernetes: # half an hour the first time
	sh tests/controlplane/release.sh $(KUBERNETES) $(abspath $(TARGET))/kubernetes/$(KUBERNETES)

# Skipped aloud without root, or without what it needs of the kernel.
node: node-parts $(if $(KUBERNETES),kubernetes) ## a real node whose kubelet, kube-proxy and CoreDNS are clients of Weir (needs root, Go, kubectl, apt); KUBERNETES=1.36: with a control plane of that release, PREVIOUS=DIR: the upgrade begins with the version that is built there, YURTHUB=PROGRAM: a node that comes from YurtHub (tests/bench/YURTHUB.md)
	KUBERNETES='$(KUBERNETES)' PREVIOUS='$(PREVIOUS)' YURTHUB='$(YURTHUB)' $(RELEASE)/weir-node

# The suite's programs stay in the target folder. What agnhost runs comes from Debian's packages, with their libraries.
conformance: node-parts conformance-parts ## Kubernetes' conformance suite on that node, directly and through Weir; FOCUS=sig-cli,... RELOADS=1 DIRECT=0
	KUBERNETES='$(KUBERNETES)' FOCUS='$(FOCUS)' RELOADS='$(RELOADS)' CACHED='$(CACHED)' DIRECT='$(DIRECT)' WEIR_FLAGS='$(WEIR_FLAGS)' $(RELEASE)/weir-node conformance

conformance-parts: $(if $(KUBERNETES),kubernetes)
	sh tests/node/e2e/build.sh $(abspath $(TARGET))/node/e2e
	sh tests/node/packages.sh $(abspath $(TARGET))/node/e2e/debian "bash curl bind9-dnsutils dash libc-bin netcat-openbsd" '^lib.*[0-9]|^bind9-'

# As CI runs it. Go's build cache keeps what a build compiled before its time was up: the next one continues there.
conformance-short: node-parts ## the short form of the suite through Weir (26 tests), while its filter set is reloaded every 5 s; skipped as `node` is
	@why=$$($(RELEASE)/weir-node requirements) || exec sh tests/skip.sh node "$$why"; \
	timeout $(SUITE_TIMEOUT) $(MAKE) --no-print-directory conformance-parts; result=$$?; \
	if [ $$result = 124 ]; then \
	    sh tests/skip.sh conformance-suite "it was not built within $(SUITE_TIMEOUT) s; the next build continues"; \
	elif [ $$result = 0 ]; then KUBERNETES='$(KUBERNETES)' FOCUS=short RELOADS=1 DIRECT=failed $(RELEASE)/weir-node conformance; \
	else exit $$result; fi
SUITE_TIMEOUT ?= 600

bench: build ## figures with units, baselines in the same run; PARTS="engine lists events caches watches changes memory sizing tls process yurthub" chooses; `yurthub` needs YURTHUB (tests/bench/YURTHUB.md)
	cargo run --release --locked -p weir-bench -- $(PARTS)

# sonic-rs chooses its vector instructions when it is compiled, the others when they run. glibc keeps its memory: where it gives
# pages back between runs, simd-json's figure for EndpointSlices is 470 MB/s in some runs and 1,020 in others.
bench-document: ## weir-document beside simd-json, sonic-rs, and serde_json with k8s-openapi: the table of host/document/README.md
	@RUSTFLAGS="-C target-cpu=native" GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296 \
	    cargo run --release --locked --quiet --manifest-path tests/document-bench/Cargo.toml --target-dir $(TARGET)/document-bench

nginx: ## Debian's nginx for the bench to compare with, unpacked in the target folder, not installed
	mkdir -p $(TARGET)/nginx
	cd $(TARGET)/nginx && apt-get download nginx && dpkg -x nginx_*.deb .

# Without it the tests of the status page say that they are skipped; where CI is set they fail instead.
browser: ## Debian's headless Chromium for the tests of the status page, unpacked in the target folder, not installed
	@sh tests/node/packages.sh $(abspath $(TARGET))/browser "chromium-headless-shell chromium-common fonts-dejavu-core" '^lib([abd-z]|c[^6])' \
	|| sh tests/skip.sh browser "Debian's packages cannot be had"

check-format:
	cargo fmt --all --check
	rustfmt --check --edition 2024 tests/schedules/build.rs tests/schedules/src/*.rs tests/schedules/src/schedules/*.rs
	rustfmt --check --edition 2024 tests/document-bench/src/main.rs

lint: guest-target
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --release --locked $(HOST) --features weir/otlp --lib -- -D warnings
	cargo clippy --profile module --locked --target $(GUEST) $(FILTERS:%=-p weir-filter-%) -p weir-guest -- -D warnings
	cargo clippy --locked --manifest-path tests/document-bench/Cargo.toml --target-dir $(TARGET)/document-bench -- -D warnings

docs: ## every link in the documentation, private items too
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --release --locked --workspace --no-deps --document-private-items

docs-tables: ## rewrites the tables of flags, configuration keys and metrics in deploy/
	WEIR_UPDATE_DOCS=1 cargo test --release --locked -p weir --lib documents
	WEIR_UPDATE_DOCS=1 cargo test --release --locked -p weir-tests --test deploy readme_of_the_chart

# Built once, where crates.io can be reached; without it the check is skipped aloud.
DENY := $(TARGET)/tools/bin/cargo-deny
# A workspace of its own needs few of the exceptions. The bench may have one crate twice.
deny_apart = $(DENY) --manifest-path tests/$(1)/Cargo.toml --config deny.toml check -A license-not-encountered -A unmatched-skip -A unmatched-skip-root
deny: ## licences, duplicate versions, sources and known vulnerabilities of all dependencies
	@[ -x $(DENY) ] || cargo install --locked --quiet --root $(TARGET)/tools --target-dir $(TARGET)/tools/build --debug cargo-deny@0.20.2 \
	    || sh tests/skip.sh deny "cargo-deny cannot be installed"
	@if [ -x $(DENY) ]; then $(DENY) check bans licenses sources && $(call deny_apart,schedules) bans licenses sources && \
	    $(call deny_apart,document-bench) licenses sources; fi
	@if [ ! -x $(DENY) ]; then :; elif timeout 60 $(DENY) fetch db >/dev/null 2>&1; then $(DENY) check --disable-fetch advisories; \
	else sh tests/skip.sh advisories "the database of RustSec cannot be had"; fi

# The packages for others say with which Rust they build: the oldest that does.
RUST_VERSION = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' host/document/Cargo.toml)
rust-version: ## weir-document, weir-kube and weir-filter with the oldest Rust that they name
	@rustup toolchain list | grep -q "^$(RUST_VERSION)[.-]" || rustup toolchain install $(RUST_VERSION) --profile minimal \
	    || sh tests/skip.sh rust-version "Rust $(RUST_VERSION) cannot be had"
	@if rustup toolchain list | grep -q "^$(RUST_VERSION)[.-]"; then \
	    RUSTUP_TOOLCHAIN=$(RUST_VERSION) cargo check --locked --target-dir $(TARGET)/rust-version -p weir-document -p weir-kube -p weir-filter; fi

# What protobuf fields are called in JSON, by reflection over k8s.io/api; the objects are what the tests compare with.
SCHEMA := host/document/schema

# What YAML scalars are, as sigs.k8s.io/yaml reads them.
YAML := host/kube/yaml

schema: ## rewrites the protobuf table, its test objects, the model's .proto files and the YAML values (needs Go)
	cd $(YAML) && go run . < texts.txt > values.new && mv values.new values.txt
	cd $(SCHEMA) && go run . > kubernetes.new && mv kubernetes.new kubernetes.schema
	cd $(SCHEMA) && go run ./fixtures kubernetes.schema > ../tests/protobuf/objects.txt
	cd $(SCHEMA) && sh $(CURDIR)/tests/model/protos.sh $(CURDIR)/tests/model/proto

schema-check: ## the committed table is what the published types say (skipped without Go or its modules)
	@if ! command -v go >/dev/null; then sh tests/skip.sh schema-check "Go is not installed"; \
	elif ! (cd $(SCHEMA) && timeout 120 go mod download); then sh tests/skip.sh schema-check "its Go modules cannot be had"; \
	else cd $(SCHEMA) && go vet ./... && go run . | diff -u kubernetes.schema - && \
	  go run ./fixtures kubernetes.schema | diff -q ../tests/protobuf/objects.txt - && \
	  protos=$$(mktemp -d) && sh $(CURDIR)/tests/model/protos.sh $$protos && diff -r $$protos $(CURDIR)/tests/model/proto && rm -r $$protos && \
	  cd $(CURDIR)/$(YAML) && go vet ./... && go run . < texts.txt | diff -u values.txt - && echo "schema-check: the table is up to date"; fi

# Long runs, each a target of its own.
MUTATIONS ?= 100000
converge: build controlplane ## caches behind Weir against a real API server, whose link, disk, clock and daemon fail, FAULTS=n times as often; MUTATIONS=n and SEED=n, from a failed run, which leaves target/converge/SEED
	WEIR_MUTATIONS=$(MUTATIONS) WEIR_SEED=$(SEED) WEIR_FAULTS=$(FAULTS) cargo test --release --locked -p weir-tests --test real converge -- --nocapture

INPUTS ?= 10000000
differential: controlplane ## Weir's parsers of credentials, selectors and options against kube-apiserver's own code; INPUTS=n and SEED=n, from a failed run
	WEIR_INPUTS=$(INPUTS) WEIR_SEED=$(SEED) cargo test --release --locked -p weir-tests --test real differential -- --nocapture

READS ?= 1000
permissions: build controlplane ## random users with random permissions, whose answers through Weir are those of the API server; READS=n of each user, SEED=n
	WEIR_READS=$(READS) WEIR_SEED=$(SEED) cargo test --release --locked $(HOST) --test real random_users -- --nocapture

upgrade: build ## this daemon and the one of PREVIOUS=DIR, a checkout in which `make build` has run, in turn over one cache directory, with and without an API server
	WEIR_PREVIOUS=$(abspath $(PREVIOUS)) cargo test --release --locked $(HOST) --test behaviour upgrade -- --nocapture

CYCLES ?= 1000
kills: build ## a daemon killed CYCLES=n times while changes get to its disk, and a store without its daemon as often
	WEIR_TEST_CYCLES=$(CYCLES) cargo test --release --locked -p weir-tests --test behaviour kills -- --nocapture
	WEIR_TEST_KILLS=$(CYCLES) cargo test --release --locked -p weir-store --lib disk::tests::crash -- --nocapture

LIVES ?= 1000
lives: build ## LIVES=n random lives of one cache directory: starts under right and wrong circumstances serve what was committed; SEED=n, from a failed run
	WEIR_LIVES=$(LIVES) WEIR_SEED=$(SEED) cargo test --release --locked -p weir-tests --test behaviour lives:: -- --nocapture

SEQUENCES ?= 10000
file-operations: build ## SEQUENCES=n random sequences of operations on the files of modules and configuration: what is on disk is in force within a second; SEED=n, from a failed run
	WEIR_SEQUENCES=$(SEQUENCES) WEIR_SEED=$(SEED) cargo test --release --locked $(HOST) --test behaviour reload_random -- --nocapture

STEPS ?= 10000000
views: ## STEPS=n random acts upon a view and its clients, in worlds of 60; SEED=n is the first world
	WEIR_STEPS=$(STEPS) WEIR_SEED=$(SEED) cargo test --release --locked $(HOST) -p weir-view --lib machine::tests::clients -- --nocapture

MINUTES ?= 10
soak: build ## a hundred clients come and go for MINUTES=n while filters are reloaded; the daemon's memory stays flat
	WEIR_TEST_SOAK_SECONDS=$$(($(MINUTES) * 60)) cargo test --release --locked -p weir-tests --test behaviour soak -- --nocapture

REPLAYS ?= 20000
replay: modules ## calls against replays over generated filters, objects and changes; REPLAYS=n cases, SEED=n as a failed run printed
	WEIR_REPLAYS=$(REPLAYS) WEIR_SEED=$(SEED) cargo test --release --locked -p weir-runtime --test replay -- --nocapture

fuzz: ## coverage-guided fuzzing of the document engine's parsers; FUZZ_RUNS=n bounds each by executions
	$(MAKE) -C tests/fuzz

# The only unsafe code is the block scanner's. Miri interprets its word and vector forms, the latter with the target features
# that a processor would report. Needs a nightly toolchain with the components miri and rust-src.
MIRI_FEATURES := $(if $(findstring x86_64,$(shell rustc -vV)),+avx2$(,)+pclmulqdq$(,)+bmi1$(,)+bmi2$(,)+popcnt$(,)+lzcnt,+neon$(,)+aes)
miri: ## the block scanner's tests under Miri, in a short form
	MIRIFLAGS=-Zmiri-disable-isolation RUSTFLAGS="-Ctarget-feature=$(MIRI_FEATURES)" \
	    cargo +nightly miri test --locked -p weir-document --lib json::scan

guest-target:
	@rustup target list --installed | grep -qx $(GUEST) || rustup target add $(GUEST)

clean:
	cargo clean
