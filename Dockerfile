# One image for all roles: Airflow's servers, Spark's master and workers, drivers and executors must have the same
# Python, Lance and memwal_core, because rows and plans travel between them.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 50000 airflow

WORKDIR /opt/memwal
COPY requirements.lock requirements-stack.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock -r requirements-stack.lock

COPY pyproject.toml README.md LICENSE ./
COPY memwal_core memwal_core
COPY plugins plugins
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
COPY jobs jobs
COPY dags dags

ENV AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/memwal/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/memwal/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    JAVA_HOME=/usr/lib/jvm/default-java \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=python3 \
    LANCE_LOG=error,lance::index=off
RUN mkdir -p /opt/airflow /opt/spark-work && chown airflow /opt/airflow /opt/spark-work
USER airflow
ENTRYPOINT ["tini", "--"]
CMD ["airflow", "version"]
