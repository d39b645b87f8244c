#!/bin/sh
# Makes the bucket, and a key for it that is not the key of the server: it reads and writes objects of this bucket and
# nothing else. May run again. Keys go through pipes, so that they are on no command line.
set -eu
line() { # <number> <file>: without programs that the image may lack
  number=$1
  while IFS= read -r found && [ "$number" -gt 1 ]; do number=$((number - 1)); done <"$2"
  echo "${found##* }"
}
server=${S3_SERVER:-http://s3:9000}
key=$(line 2 /run/secrets/s3_credentials)
secret=$(line 3 /run/secrets/s3_credentials)

{ line 1 /run/secrets/s3_root_user && line 1 /run/secrets/s3_root_password; } | mc alias set root "$server"
mc mb --ignore-existing root/lake
mc admin policy create root lake /etc/s3/policy.json
printf '%s\n%s\n' "$key" "$secret" | mc admin user add root
mc admin policy attach root lake --user "$key" || echo "attached before"
# Neither of them is believed: the key is tried.
printf '%s\n%s\n' "$key" "$secret" | mc alias set lake "$server"
mc ls lake/lake
