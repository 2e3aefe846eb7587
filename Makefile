# Weir's commands. `make demo` and `make test` are the two that a newcomer needs.
#
# Everything is built in one profile (release): a debug build of Cranelift takes minutes over one module, and what is
# tested is what is shipped.

FILTERS := discardcloudservice endpoints forwardkubesvctraffic inclusterconfig masterservice nodeportaddresses \
           nodeportisolation serviceenvupdater servicetopology
TARGET  := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
GUEST   := wasm32-wasip2
CI      ?=
, := ,

.PHONY: build modules test demo bench fuzz miri check-format lint docs deny guest-target clean

build: modules ## target/release/weir and target/modules/<filter>.wasm
	cargo build --release --locked -p weir

modules: guest-target
	cargo build --profile module --locked --target $(GUEST) $(FILTERS:%=-p weir-filter-%)
	@mkdir -p $(TARGET)/modules
	@for filter in $(FILTERS); do cp $(TARGET)/$(GUEST)/module/$$filter.wasm $(TARGET)/modules/; done

test: check-format build lint ## formatting, clippy with warnings denied, every test
	cargo test --release --locked --workspace

demo: build ## a small edge cluster, Weir in front of it, and a filter replaced while it runs
	cargo build --release --locked -p weir-tests --bin weir-demo
	$(TARGET)/release/weir-demo $(if $(CI),--end)

bench: build ## figures with units, baselines in the same run
	cargo run --release --locked -p weir-bench

check-format:
	cargo fmt --all --check

lint: guest-target
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --profile module --locked --target $(GUEST) $(FILTERS:%=-p weir-filter-%) -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --workspace --no-deps

deny: ## licences, duplicate versions, sources (needs cargo-deny)
	cargo deny check

# Long runs, each a target of its own.
fuzz: ## coverage-guided fuzzing of the document engine's parsers
	$(MAKE) -C tests/fuzz

# The only unsafe code is the block scanner's. Words and vectors are interpreted alike, the latter with the target features
# that a processor would tell. Needs a nightly toolchain with the components miri and rust-src.
MIRI_FEATURES := $(if $(findstring x86_64,$(shell rustc -vV)),+avx2$(,)+pclmulqdq$(,)+bmi1$(,)+bmi2$(,)+popcnt$(,)+lzcnt,+neon$(,)+aes)
miri: ## the block scanner's tests under Miri, in a short form
	MIRIFLAGS=-Zmiri-disable-isolation RUSTFLAGS="-Ctarget-feature=$(MIRI_FEATURES)" \
	    cargo +nightly miri test --locked -p weir-document --lib json::scan

guest-target:
	@rustup target list --installed | grep -qx $(GUEST) || rustup target add $(GUEST)

clean:
	cargo clean
