"""Canonical addresses, and the texts that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_pipelines.storage.errors import scrub
from batch_pipelines.storage.locations import InvalidPath, parse_location, redact

BASE = Path("/srv/base")


def canonical(text: str) -> str:
    return parse_location(text, BASE).uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/a.json", "file:///data/a.json"),
        ("a.json", "file:///srv/base/a.json"),
        ("./a/./b//c.json", "file:///srv/base/a/b/c.json"),
        ("/data/", "file:///data"),
        ("/", "file:///"),
        ("//data/a", "file:///data/a"),
        ("file:///data/a.json", "file:///data/a.json"),
        ("FILE://localhost/data//a.json/", "file:///data/a.json"),
        ("file:///my%20dir/a%23b", "file:///my%20dir/a%23b"),
        ("/my dir/a#b?c%20d", "file:///my%20dir/a%23b%3Fc%2520d"),
        ("/data/été.json", "file:///data/été.json"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("S3://Bucket/A/b/", "s3://Bucket/A/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a b%20c?d#e", "s3://bucket/a b%20c?d#e"),
        ("gcs://bucket/k", "gs://bucket/k"),
        ("azure://container/k", "az://container/k"),
        ("abfs://container/k", "az://container/k"),
        ("memory://x/y", "memory://x/y"),
        ("HTTPS://Host.Example:443/A?Sig=%2F..%2F", "https://host.example/A?Sig=%2F..%2F"),
        ("https://host:8443/a", "https://host:8443/a"),
        ("http://127.0.0.1:80/a", "http://127.0.0.1/a"),
        ("https://[::1]:9/a", "https://[::1]:9/a"),
    ],
)
def test_address_has_one_canonical_form(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " /a",
        "s3://b/a ",
        "/a\0b",
        "/a\nb",
        "s3://bucket/a\x7fb",
        "/a\x85b",
        "/half\ud800",
        "/a/../b",
        "..",
        "../a",
        "a/..",
        "~/a",
        "s3://bucket/a/../b",
        "s3://bucket/%2e%2e/b",
        "s3://bucket/a/%252E%252e/b",
        "s3://bucket/a%2f..%2fb",
        "s3://bucket//a",
        "s3://bucket/a//b",
        "s3://bucket/./a",
        "s3://",
        "s3:///a",
        "s3://user:secret@bucket/a",
        "s3:/bucket/a",
        "file:/a",
        "file://host/a",
        "file://",
        "file:///a?b",
        "file:///a%00b",
        "file:///a%2F..%2Fb",
        "file:///a/%2e%2e/b",
        "file:///%ff",
        "ftp://host/a",
        "javascript://a",
        "hdfs://a/b",
        "https://user:secret@host/a",
        "https://user@host/a",
        "https:///a",
        "https://host/a#b",
        "https://host/a\\..\\b",
        "https://host/..%5cb",
        "https://host/a/..;x/b",
        "https://host/a/%2e/b",
        "https://host:port/a",
        "https://host name/a",
        "https://h\u00f6st/a",
        "abfss://container@account.dfs.core.windows.net/k",
        "https://host/a?x=\n",
    ],
)
def test_text_that_is_no_clear_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidPath):
        canonical(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@host/..?sig=hunter2",
        "s3://me:hunter2@b/k",
        "wat://me:hunter2@b/k?x=hunter2",
        "s3://b//k?hunter2",
    ],
)
def test_refusal_does_not_repeat_secrets(text: str) -> None:
    with pytest.raises(InvalidPath) as caught:
        canonical(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("inner", "outer", "inside"),
    [
        ("s3://bucket/team/x", "s3://bucket/team", True),
        ("s3://bucket/team", "s3://bucket/team/", True),
        ("s3://bucket/team2", "s3://bucket/team", False),
        ("s3://bucket/team", "s3://bucket/team/x", False),
        ("s3://bucket/TEAM/x", "s3://bucket/team", False),
        ("s3://bucket2/x", "s3://bucket", False),
        ("s3://bucket/x", "s3://bucket", True),
        ("gs://bucket/x", "s3://bucket", False),
        ("https://host/a/b?sig=1", "https://HOST:443/a", True),
        ("https://host:444/a/b", "https://host/a", False),
        ("https://host.evil/a/b", "https://host/a", False),
        ("http://host/a/b", "https://host/a", False),
        ("/data/x", "/data", True),
        ("/data2", "/data", False),
        ("file:///data/x", "/data", True),
        ("/anything", "/", True),
    ],
)
def test_within_has_folder_semantics(inner: str, outer: str, inside: bool) -> None:
    assert parse_location(inner, BASE).within(parse_location(outer, BASE)) is inside


def test_redact_drops_signature_and_user() -> None:
    assert redact("https://me:pw@host/a/b?X-Amz-Signature=1") == "https://host/a/b"
    assert redact("s3://bucket/a") == "s3://bucket/a"
    assert redact("/a?b") == "/a?b"


def test_scrub_cleans_urls_within_a_text() -> None:
    text = "Error performing PUT https://me:pw@host/b/k?uploadId=1&sig=2 in 3ms, uri: https://host/x?sv=1)"
    assert scrub(text) == "Error performing PUT https://host/b/k in 3ms, uri: https://host/x)"
