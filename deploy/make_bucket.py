"""Make a bucket on the S3 server that the environment names, unless it is there. Usage: make_bucket.py NAME."""

from __future__ import annotations

import sys

import boto3


def main() -> None:
    """Make the bucket; any error of the server ends the program."""
    name = sys.argv[1]
    client = boto3.client("s3")
    if name not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=name)


main()
