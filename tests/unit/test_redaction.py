"""Secrets are replaced wherever a text quotes them, and nothing else is."""

from __future__ import annotations

import ast
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import memwal_core
from memwal_core import redaction
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.document import JobDocument, parse_job
from memwal_core.redaction import RedactingFormatter, harmless, redact, remember_secrets

WORD = "CANARY0123456789abcdef"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://airflow:{WORD}@db/airflow",
        f"'s3://{WORD}:x@bucket/a'",
        f"GET https://bucket.s3.amazonaws.com/a?X-Amz-Credential=x&X-Amz-Signature={WORD} in 3 ms",
        f"abfss://c@account.dfs.core.windows.net/a?sv=1&sig={WORD}",
        f"GET /c/t?sv=2020&amp;sig={WORD}&amp;se=1 HTTP/1.1",
        f"Authorization: Bearer {WORD}.{WORD}",
        f"authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/2026/s3, Signature={WORD}",
        f"x-amz-security-token: {WORD}==",
        f"<Error><Token-0>{WORD}</Token-0></Error>",
        f"{{'aws_secret_access_key': '{WORD}', 'aws_session_token': '{WORD}'}}",
        f'{{"azure_storage_account_key": "{WORD}", "azure_storage_sas_token":"{WORD}"}}',
        f"spark.hadoop.fs.s3a.secret.key={WORD} spark.x.password={WORD}",
    ],
)
def test_what_has_the_form_of_a_secret_is_replaced(text: str) -> None:
    assert WORD not in redact(text)
    assert redact(text) != text
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "the lease is lost [fencing_token=17, ticket='snapshot/table#4@abc']",
        "no batch [keys=['id'], key='name', primary_key=['id']]",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
        "the store refused access [path='t/x', store='s3://bucket/t'] next: check credentials and permissions",
        "region 1c0c1b90-0fbc-49c1-99ed-67223e52e103: tokens of the text index: 4,812",
        "az://container/a, gs://bucket/a, file:///data/a?, /data/a",
    ],
)
def test_what_people_need_is_kept(text: str) -> None:
    assert redact(text) == text


def test_a_secret_that_was_given_is_replaced_in_every_spelling() -> None:
    secret, sas = f"{WORD}/+=<&>", f"?sv=2020&sig={WORD}%3D&se=1"
    remember_secrets({"aws_secret_access_key": secret, "azure_storage_sas_key": sas, "aws_region": "eu-central-1"})

    for spelled in (secret, f"{WORD}%2F%2B%3D%3C%26%3E", f"{WORD}/%2B%3D%3C%26%3E", f"{WORD}/+=&lt;&amp;&gt;"):
        assert redact(f"they said {spelled} twice") == "they said *** twice"
    assert redact(f"quoted {WORD}= and {WORD}%3D in eu-central-1") == "quoted *** and *** in eu-central-1"


def test_variables_of_the_cloud_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{WORD}1")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", f"{WORD}2")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    remember_secrets({})

    assert WORD not in redact(f"{WORD}1 {WORD}2")


def test_errors_say_no_secret_in_text_facts_and_copies() -> None:
    remember_secrets({"aws_session_token": WORD})
    error = InvalidRequestError(
        f"it said {WORD}", remedy=f"ask {WORD}", cause=f"<{WORD}>", known=[WORD, {WORD: (WORD,)}], bytes=WORD.encode()
    )

    for each in (error, pickle.loads(pickle.dumps(error))):
        assert WORD not in str(each) + repr(each) + str({**each.facts, "bytes": ""})
    assert error.facts["cause"] == "<***>"


def test_an_error_that_says_a_secret_is_not_chained() -> None:
    plain, loud = OSError("connection reset"), OSError(f"sent Bearer {WORD}")

    assert harmless(plain) is plain
    assert harmless(loud) is None


def test_logs_have_no_secret_in_message_arguments_and_traceback() -> None:
    remember_secrets({"password": WORD})
    error = ValueError(WORD)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "%s", (WORD,), (ValueError, error, None))

    line = RedactingFormatter().format(record)

    assert "ValueError: ***" in line
    assert WORD not in line
    assert WORD in logging.Formatter().format(record)


def _fields(source: str) -> Iterator[tuple[str, ast.expr | None]]:
    """Return the fields that classes of a file declare, and what stands for their defaults."""
    for kind in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        for each in kind.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield f"{kind.name}.{each.target.id}", each.value


def test_no_repr_shows_options_of_a_store() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(memwal_core.__file__).parent.rglob("*.py")]
    declared = [each for text in texts if "_options:" in text for each in _fields(text)]
    options = {name: default for name, default in declared if name.endswith(("storage_options", ".target_options"))}
    shown = [
        name
        for name, default in options.items()
        if not any(
            each.arg == "repr" and getattr(each.value, "value", True) is False
            for each in getattr(default, "keywords", ())
        )
    ]

    assert len(options) >= 6
    assert shown == []


def test_a_document_that_is_refused_is_not_quoted() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_job(f'{{"uri": "x", "storage_options": {{"password": "{WORD}"}}, "unknown": "{WORD}"}}')

    assert WORD not in str(refused.value) + str(refused.value.__cause__)
    assert WORD not in repr(JobDocument(uri="x", storage_options={"anything": WORD}))
