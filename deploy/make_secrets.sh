#!/usr/bin/env bash
# Makes the secrets of docker-compose.yaml, one per file, in deploy/secrets. A file that is there stays as it is.
#
# Only you may enter the folder. The files in it can be read by all, because containers see the files alone and read
# them as users of their own.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
cd secrets

keep() { # <file>: writes standard input there, unless the file exists
  if [ -e "$1" ]; then
    cat >/dev/null
  else
    cat >"$1.new"
    chmod 444 "$1.new"
    mv "$1.new" "$1"
  fi
}

word() { # <bytes>
  od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'
  echo
}

word 24 | keep postgres_password
echo "postgresql+psycopg2://airflow:$(cat postgres_password)@postgres:5432/airflow" | keep airflow_database
head -c 32 /dev/urandom | base64 | tr '+/' '-_' | keep airflow_fernet_key
word 64 | keep airflow_secret_key
word 64 | keep airflow_jwt_secret
echo "{\"admin\": \"$(word 12)\"}" | keep airflow_passwords
for file in s3_credentials s3_admin_credentials; do
  { echo "[default]" && echo "aws_access_key_id = $(word 10)" && echo "aws_secret_access_key = $(word 20)"; } | keep $file
done
# Who the S3 server knows. The application's key reads and writes the bucket of the tables and nothing else.
identity() { # <name> <file of the key> <actions>
  sed -n -e "s/^aws_access_key_id = \(.*\)/{\"name\": \"$1\", \"credentials\": [{\"accessKey\": \"\1\",/p" \
    -e "s/^aws_secret_access_key = \(.*\)/\"secretKey\": \"\1\"}], \"actions\": [$3]}/p" "$2"
}
{
  echo '{"identities": ['
  identity admin s3_admin_credentials '"Admin"' && echo ,
  identity lake s3_credentials '"Read:lake", "Write:lake", "List:lake"'
  echo ']}'
} | keep s3_config
{ cat ../spark-defaults.conf && echo "spark.authenticate.secret $(word 32)"; } | keep spark-defaults.conf
echo "secrets: deploy/secrets is complete; the login of Airflow is in airflow_passwords"
