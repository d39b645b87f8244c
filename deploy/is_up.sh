#!/bin/bash
# Succeeds if a server answers 200 and its answer has a text: is_up.sh HOST PORT PATH [TEXT]. Every container runs it every
# few seconds, so it starts no interpreter.
set -eu
exec 3<>"/dev/tcp/$1/$2"
printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$3" "$1" >&3
answer=$(timeout 8 cat <&3)
[[ $answer == HTTP/1.?\ 200* && $answer == *"${4:-}"* ]]
