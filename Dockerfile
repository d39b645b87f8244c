# One image for all roles: Airflow's servers, Spark's master and workers, drivers and executors must have the same
# Python, Lance and memwal_core, because rows and plans travel between them. The digest is that of the index of all
# processors.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

# Java with what Spark starts and reads: a third of Debian's headless runtime, without fonts, sound and printing.
FROM ${BASE} AS java
# Debian's Java links its manual pages, whose folder slim images lack.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
    && jlink --compress=2 --strip-java-debug-attributes --no-header-files --no-man-pages --output /opt/java --add-modules \
    java.se,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jcmd,jdk.jfr,jdk.management,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils
WORKDIR /build
COPY requirements-uv.lock requirements-build.lock requirements-stack.lock ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-uv.lock \
    && uv venv --python /usr/local/bin/python3 /opt/memwal/venv
ENV UV_BUILD_CONSTRAINT=/build/requirements-build.lock \
    UV_NO_CACHE=1 \
    VIRTUAL_ENV=/opt/memwal/venv
# PySpark and its client have no wheel; the locked tools build them, and nothing else may be built.
RUN uv pip sync --compile-bytecode --require-hashes --require-build-hashes \
    --only-binary :all: --no-binary pyspark --no-binary pyspark-client requirements-stack.lock
COPY pyproject.toml README.md LICENSE ./
COPY memwal_core memwal_core
COPY dags dags
COPY jobs jobs
COPY plugins plugins
COPY docs/runbooks docs/runbooks
RUN uv pip install --compile-bytecode --no-deps --require-build-hashes .
# What nothing here runs: packages' own tests, debug symbols (not of *.libs: tools rewrote those, and strip would break
# them), and of Spark the Connect server, the state store RocksDB and examples. Not its machine learning: what
# serializes rows loads classes of it. The end of the last stage tries what is left.
RUN cd /opt/memwal/venv/lib/python3.11/site-packages \
    && find . -type d -name tests -prune -exec rm -r {} + \
    && find . -name '*.so*' -type f -not -path './*.libs/*' -exec strip --strip-unneeded {} + \
    && rm -r pyspark/examples \
    && cd pyspark/jars \
    && rm -r connect-repl spark-connect_* spark-pipelines_* rocksdbjni-*

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 50000 airflow
COPY --from=java /opt/java /opt/java
COPY --from=build /opt/memwal/venv /opt/memwal/venv
WORKDIR /opt/memwal
COPY jobs jobs
COPY dags dags
COPY plugins plugins
COPY deploy/check_image.sh deploy/example_table.sh deploy/is_up.sh deploy/make_bucket.py deploy/
# Containers run read-only: these are what volumes and tmpfs cover, and a new volume takes its owner from here.
RUN mkdir -p /opt/airflow/logs /opt/scratch \
    && chown airflow:airflow /opt/airflow /opt/airflow/logs /opt/scratch

ENV PATH=/opt/memwal/venv/bin:$PATH \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/memwal/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/memwal/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/memwal/venv/lib/python3.11/site-packages/pyspark \
    SPARK_LOCAL_DIRS=/opt/scratch \
    PYSPARK_PYTHON=/opt/memwal/venv/bin/python3 \
    PYTHONDONTWRITEBYTECODE=1 \
    LANCE_LOG=error,lance::index=off
USER 50000:50000
# An image that cannot run Airflow, Spark or a merge is not made.
RUN --mount=type=tmpfs,target=/tmp deploy/check_image.sh
ENTRYPOINT ["tini", "--"]
CMD ["airflow", "version"]
