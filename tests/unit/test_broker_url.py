"""X3: what may be written as a connection string, and the one line for what may not."""

import sys

import pytest

from agentbook.broker.url import parse
from agentbook.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "url", "user", "password", "token"),
    [
        ("nats://h:4333", "nats://h:4333", None, None, None),
        ("localhost", "nats://localhost:4222", None, None, None),
        ("localhost:4333", "nats://localhost:4333", None, None, None),
        ("a:1, nats://b", "nats://a:1,nats://b:4222", None, None, None),
        ("tls://h", "tls://h:4222", None, None, None),
        ("[::1]", "nats://[::1]:4222", None, None, None),
        ("nats://bob:secret@[::1]:4333", "nats://[::1]:4333", "bob", "secret", None),
        ("bob:secret@h", "nats://h:4222", "bob", "secret", None),
        ("bob:p%40s%2Fs@h", "nats://h:4222", "bob", "p@s/s", None),
        ("bob:@h", "nats://h:4222", "bob", "", None),
        ("t0ken@h", "nats://h:4222", None, None, "t0ken"),
        ("nats://bob:secret@a,nats://b", "nats://a:4222,nats://b:4222", "bob", "secret", None),
    ],
)
def test_x3_a_connection_string_that_works(written, url, user, password, token):
    target = parse(written)
    assert (target.url, target.user, target.password, target.token) == (url, user, password, token)
    assert not target.embedded


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("nats://", "names no host"),
        ("http://h", "unknown scheme 'http'"),
        ("nats://h:port", "no readable port"),
        ("nats://h:99999", "no readable port"),
        ("nats://h:0", "names no host and port"),
        ("::1", "needs brackets"),
        ("nats://::1:4222", "needs brackets"),
        ("nats://h:4222/x", "something after the port"),
        ("a host", "names no host"),
        ("nats://a,ws://b", "may not mix"),
        ("nats://u:p@a,nats://v:p@b", "only one user"),
    ],
)
def test_x3_a_connection_string_that_does_not_is_one_line_that_says_why(written, says):
    with pytest.raises(ConfigError) as refused:
        parse(written)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("password", ["hush/hush", "hush#hush", "hush?hush", "hush,hush", "hush:hush@x:y", "hush hush"])
def test_x3_a_password_is_never_shown_even_where_it_breaks_the_url(password):
    for written in (f"nats://bob:{password}@h:port", f"bob:{password}@h:port"):
        with pytest.raises(ConfigError) as refused:
            parse(written)
        assert "hush" not in str(refused.value)
        assert "Percent-encode" in str(refused.value)


def test_a_target_does_not_show_its_credentials():
    assert "secret" not in repr(parse("bob:secret@h"))
    assert "t0ken" not in repr(parse("t0ken@h"))


def test_x3_websockets_without_aiohttp_are_one_line_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setattr("agentbook.broker.url.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install aiohttp"):
        parse("ws://h:8080")


def test_x3_websockets_with_aiohttp_keep_their_path(monkeypatch):
    monkeypatch.setattr("agentbook.broker.url.find_spec", lambda name: object())
    assert parse("wss://bob:secret@h/nats").url == "wss://h:443/nats"
