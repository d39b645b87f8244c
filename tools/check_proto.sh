#!/usr/bin/env bash
# Fails if the generated protobuf code is not what the given .proto files generate.
set -euo pipefail
cd "$(dirname "$0")/.."
generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT
python -m grpc_tools.protoc -Iproto --python_out="$generated" --pyi_out="$generated" "$@"
if ! diff --recursive --exclude=__init__.py --exclude=__pycache__ "$generated/memwal_core/format/pb" memwal_core/format/pb; then
  echo "memwal_core/format/pb is not what proto/ generates; next: make proto" >&2
  exit 1
fi
