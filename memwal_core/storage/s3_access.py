"""S3 options: the caller's, then the environment's, then boto3's chain of credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from obstore.auth.boto3 import Boto3CredentialProvider

from memwal_core.errors import InvalidRequestError
from memwal_core.redaction import remember_secrets

_OVERRIDING_VARIABLE = "AWS_ENDPOINT_URL_S3"
_ENDPOINT_VARIABLES = (_OVERRIDING_VARIABLE, "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TRUE = frozenset({"1", "true", "yes", "on"})

# Lance refreshes credentials of these sources itself; a frozen copy would expire while Lance uses it.
_REFRESHED_BY_LANCE = frozenset({"iam-role", "container-role", "assume-role-with-web-identity"})


@dataclass(frozen=True)
class S3Access:
    """How a bucket is reached; both fields may hold secrets.

    ``provider`` gives obstore its credentials; None if the options have them or none are used.
    """

    options: Mapping[str, str] = field(repr=False)
    provider: Boto3CredentialProvider | None = field(repr=False)

    def pylance_options(self) -> dict[str, str]:
        """Return the options pylance needs, with the credentials of this moment."""
        options = dict(self.options)
        if self.provider is None or getattr(self.provider.credentials, "method", "") in _REFRESHED_BY_LANCE:
            return options
        frozen = self.provider()
        options["aws_access_key_id"] = frozen["access_key_id"]
        options["aws_secret_access_key"] = frozen["secret_access_key"]
        if frozen.get("token"):
            options["aws_session_token"] = str(frozen["token"])
        remember_secrets(options)
        return options


def resolve_s3_access(explicit: Mapping[str, str], timeout_s: float) -> S3Access:
    """Combine the sources; explicit options (with or without ``aws_`` in front) win.

    A service that gives credentials is waited for ``timeout_s`` seconds.
    """
    options = {normal_name(name): value for name, value in explicit.items()}
    _take_first(options, "aws_endpoint", _ENDPOINT_VARIABLES)
    _take_first(options, "aws_region", _REGION_VARIABLES)
    _take_first(options, "allow_http", ("AWS_ALLOW_HTTP",))
    endpoint = options.get("aws_endpoint", "")
    if endpoint and os.environ.get(_OVERRIDING_VARIABLE):
        # In obstore and pylance this variable wins over an explicit endpoint, unless it is given explicitly, too.
        options[_OVERRIDING_VARIABLE.lower()] = endpoint
    if endpoint.startswith("http://") and options.get("allow_http", "").lower() not in _TRUE:
        raise InvalidRequestError(
            "the S3 endpoint is plain HTTP, which is not allowed by default",
            remedy="use https, or allow it with the option allow_http=true (or AWS_ALLOW_HTTP=true)",
            endpoint=endpoint.rpartition("@")[2],
        )
    if "aws_access_key_id" in options:
        return S3Access(_with_matching_token(options), None)
    if options.get("aws_skip_signature", "").lower() in _TRUE:
        return S3Access(options, None)
    session = boto3.Session(botocore_session=_patient_for(timeout_s), region_name=options.get("aws_region"))
    provider = _provider(session)
    if session.region_name is not None:
        options["aws_region"] = session.region_name
    return S3Access(options, provider)


def _patient_for(timeout_s: float) -> botocore.session.Session:
    session = botocore.session.get_session()
    once = Config(connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1})
    session.set_default_client_config(once)
    return session


def normal_name(name: str) -> str:
    """Return pylance's name of an S3 option: lower case, with ``aws_`` where it belongs."""
    lowered = name.lower()
    if lowered in {"endpoint", "endpoint_url", "aws_endpoint_url", "aws_endpoint_url_s3"}:
        return "aws_endpoint"
    if lowered in {"aws_default_region", "default_region", "region"}:
        return "aws_region"
    if lowered in {"token", "aws_token", "session_token"}:
        return "aws_session_token"
    if lowered in {"access_key_id", "secret_access_key", "skip_signature", "virtual_hosted_style_request"}:
        return f"aws_{lowered}"
    return "allow_http" if lowered == "aws_allow_http" else lowered


def _with_matching_token(options: dict[str, str]) -> dict[str, str]:
    """Add the environment's session token to explicit keys only if it belongs to them.

    obstore and pylance would add the environment's token to any keys.
    """
    token = os.environ.get("AWS_SESSION_TOKEN")
    if "aws_session_token" in options or not token:
        return options
    if os.environ.get("AWS_ACCESS_KEY_ID") != options["aws_access_key_id"]:
        raise InvalidRequestError(
            "AWS_SESSION_TOKEN is set, but belongs to other keys than those in the options",
            remedy="give the option aws_session_token, or unset AWS_SESSION_TOKEN",
        )
    return {**options, "aws_session_token": token}


def _take_first(options: dict[str, str], name: str, variables: tuple[str, ...]) -> None:
    for variable in variables:
        if name not in options and os.environ.get(variable):
            options[name] = os.environ[variable]


def _provider(session: boto3.Session) -> Boto3CredentialProvider:
    try:
        return Boto3CredentialProvider(session)
    except (ValueError, BotoCoreError) as error:
        raise InvalidRequestError(
            "no S3 credentials were found",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role; for a public bucket, set the "
            "option aws_skip_signature=true",
        ) from error
