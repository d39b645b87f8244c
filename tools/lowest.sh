#!/usr/bin/env bash
# Runs tests of the core, the merge and the commands with the lowest versions that pyproject.toml allows, in .lowest/.
# Further arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.lowest/bin/python
uv=$(tools/find_uv.sh .venv/bin/python)
resolved=$(mktemp -d)
trap 'rm -r "$resolved"' EXIT
lowest=$resolved/without-airflow

compile() { # <arguments of uv pip compile...>
  "$uv" pip compile --quiet --no-header --no-annotate --resolution lowest-direct --python .venv/bin/python "$@"
}

# Bounds that nothing can reach promise what is never tried. Airflow asks for more of what the core needs as well.
compile pyproject.toml --extra all --output-file "$resolved/all" >/dev/null
.venv/bin/python -m tools.check_lowest "$resolved/all" --but opentelemetry-api
compile pyproject.toml --extra cli --extra s3 --output-file "$lowest" >/dev/null
.venv/bin/python -m tools.check_lowest "$lowest" --extras cli s3

"$uv" venv --quiet --clear --python .venv/bin/python .lowest
# The tests' own tools are those of the lock.
mapfile -t tools < <(grep -oE '^(hypothesis|packaging|psutil|pytest|pytest-timeout|pytest-xdist|pyyaml)==[^ ;]+' requirements.lock)
"$uv" pip install --quiet --python "$python" --constraint "$lowest" --requirement "$lowest" "${tools[@]}" 'moto[s3,server]'
"$uv" pip install --quiet --python "$python" --no-deps --editable .

export PATH="$PWD/.lowest/bin:$PATH"
# Two files use Spark and LanceDB's client, some tests of the others pandas, which are not there. Old packages warn.
"$python" -m pytest -n 0 -W ignore::DeprecationWarning -m "not slow and not long and not spark and not airflow" \
  tests/unit/cli tests/integration/cli tests/integration/jobs/merge tests/integration/test_front_door.py \
  --ignore tests/integration/cli/test_snapshot_catchup_compact.py --ignore tests/integration/cli/test_tables.py \
  --deselect tests/unit/cli/test_imports.py::test_a_command_can_still_convert_to_pandas_and_back \
  --deselect 'tests/integration/cli/test_frozen_dry_runs.py::test_dry_run_of_a_frozen_table_says_why_and_what_thaws_it[quality]' \
  "$@"
