"""What DAGs are made of: the hook of connections of type ``lance``, operators, triggers, and what all DAGs share.

Owns no state. Found where ``plugins/`` is Airflow's plugin folder, and where the package ``memwal-core`` is installed;
the connection type needs the latter. May import ``memwal_core``, which never imports it. What DAG files import is
loaded again and again by processes that run no job, and triggers share one event loop: at the beginning only the
requests of the jobs are imported, which need neither Lance nor Arrow nor Spark, everything else where it is needed.
"""

from __future__ import annotations


def get_provider_info() -> dict[str, object]:
    """Describe the package to Airflow's provider manager (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "memwal-core",
        "name": "MemWAL maintenance",
        "description": "Background maintenance for Lance MemWAL tables.",
        "connection-types": [
            {
                "connection-type": "lance",
                "hook-class-name": "memwal_core.airflow.hook.LanceHook",
                "hook-name": "Lance",
                "ui-field-behaviour": {
                    "hidden-fields": ["port", "schema"],
                    "relabeling": {"host": "Address", "login": "Access key (S3)", "password": "Secret key (S3)"},
                    "placeholders": {
                        "host": "s3://bucket/prefix",
                        "extra": '{"azure_storage_account_name": "lake"}',
                    },
                },
                "conn-fields": {
                    "aws_endpoint": _field("Endpoint (S3)", "Of a server other than Amazon's.", "string", format="url"),
                    "aws_region": _field("Region (S3)", "For example us-east-1.", "string"),
                    "aws_session_token": _field(
                        "Session token (S3)", "Of temporary credentials.", "string", format="password"
                    ),
                    "allow_http": _field("Allow HTTP", "Whether the endpoint may be without TLS.", "boolean"),
                },
            },
        ],
    }


def _field(label: str, description: str, kind: str, **more: str) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **more}}
