#!/usr/bin/env bash
# Prints where the locked uv is: the one on PATH if it is that version, else one of our own in .uv/, which is
# installed by its hash with the given Python if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
locked=$(awk -F '[= ]+' '/^uv==/ {print $2}' requirements-uv.lock)

is_locked() {
  [ "$("$1" --version 2>/dev/null | awk '{print $2}')" = "$locked" ]
}

if uv=$(command -v uv) && is_locked "$uv"; then
  echo "$uv"
  exit
fi
if ! is_locked .uv/bin/uv; then
  echo "setup: no uv $locked on PATH, installing it into .uv/" >&2
  rm -rf .uv
  if ! "$1" -m venv .uv >&2; then
    echo "setup: $1 cannot create a virtual environment" >&2
    echo "  next: on Debian: apt-get install python3-venv" >&2
    exit 1
  fi
  if ! .uv/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-uv.lock >&2; then
    echo "setup: uv could not be installed from the package index" >&2
    echo "  next: check the network and pip's settings (.uv/bin/pip config list), then repeat make setup" >&2
    exit 1
  fi
fi
echo "$PWD/.uv/bin/uv"
