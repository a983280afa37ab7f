"""S8: registered secrets never reach a record; what stands in their place says so."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.test_journal_records import KINDS, seqs, stamp

from agentbook import codec
from agentbook.errors import ConfigError
from agentbook.journal.records import ErrorInfo, ToolResult, decode
from agentbook.journal.redact import Redactor

SECRETS = ["sk-12345678", 'with "quotes" and \\', "schlüssel-ß-😀", "line\nbreak", "sk-1234567890"]
filler = st.text('sk-123 ü"\\\n', max_size=6)
texts = st.builds(lambda a, secret, b: a + secret + b, filler, st.sampled_from([*SECRETS, "", "harmless"]), filler)
values = st.recursive(
    st.none() | st.integers() | st.booleans() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def secrets():
    redactor = Redactor()
    for number, secret in enumerate(SECRETS):
        redactor.add(secret, f"KEY{number}")
    return redactor


def holds_a_secret(value):
    match value:
        case str():
            return any(secret in value for secret in SECRETS)
        case list():
            return any(map(holds_a_secret, value))
        case dict():
            return any(map(holds_a_secret, value)) or any(map(holds_a_secret, value.values()))
        case _:
            return False


@given(values)
@settings(max_examples=1000, deadline=None)
def test_s8_no_secret_is_left_in_any_value_or_key(secrets, value):
    clean = secrets.value(value)
    assert not holds_a_secret(clean)
    assert secrets.value(clean) == clean
    if not holds_a_secret(value):
        assert clean == value


@given(values, values)
@settings(max_examples=500, deadline=None)
def test_s8_no_secret_is_left_in_a_record_and_it_is_still_that_record(secrets, output, partial):
    for ending in ({"output": output}, {"interrupted": {"partial": [partial], "cause": "sk-12345678"}}):
        record = stamp(ToolResult.model_validate({"position": 1, "intent": 2, **ending}))
        read = decode(secrets.encoded(record.encode()), 7)
        assert not holds_a_secret(json.loads(read.encode()))
        assert (read.run, read.claim, read.n, read.intent) == (record.run, record.claim, record.n, record.intent)


@given(st.one_of(list(KINDS.values())), seqs)
@settings(max_examples=500, deadline=None)
def test_a_record_without_a_secret_is_stored_byte_for_byte(secrets, record, seq):
    data = stamp(record).encode()
    if not holds_a_secret(json.loads(data)):
        assert secrets.encoded(data) is data


WORDS = ["tool.result", "tool.intent", "unsafe", "order-42", "commit", "continue", "did_not_happen", "requested"]


@given(st.one_of(list(KINDS.values())), seqs)
@settings(max_examples=300, deadline=None)
def test_a_secret_that_is_a_word_of_the_journal_spoils_no_record(record, seq):
    redactor = Redactor()
    for word in WORDS:
        redactor.add(word, "x")
    written = stamp(record)
    read = decode(redactor.encoded(written.encode()), seq)
    assert (type(read), read.run, read.kind) == (type(written), written.run, written.kind)


def test_a_secret_that_is_the_name_of_a_type_spoils_no_value():
    from decimal import Decimal

    redactor = Redactor()
    redactor.add("decimal")
    redactor.add("Decimal")
    stored = redactor.value(codec.encode({"price": Decimal("1.50"), "unit": "a Decimal"}, "v"))
    assert codec.decode(stored) == {"price": Decimal("1.50"), "unit": "a «redacted: secret»"}


def test_an_error_is_redacted_with_its_traceback(secrets):
    error = ErrorInfo(type="ValueError", message="no sk-12345678", traceback="line 1: sk-12345678")
    record = stamp(ToolResult(position=1, intent=2, error=error))
    read = decode(secrets.encoded(record.encode()), 7)
    assert (read.error.message, read.error.traceback) == ("no «redacted: KEY0»", "line 1: «redacted: KEY0»")


def test_the_longest_secret_is_replaced_as_a_whole(secrets):
    assert secrets.text("a sk-1234567890 b sk-12345678") == "a «redacted: KEY4» b «redacted: KEY0»"


@pytest.mark.parametrize("short", ["", "a", "12345"])
def test_a_secret_too_short_is_refused(short):
    with pytest.raises(ConfigError, match="at least 6"):
        Redactor().add(short, "PIN")


def test_secrets_come_from_the_environment_by_name():
    redactor = Redactor(["API_KEY", "EMPTY", "MISSING"], {"API_KEY": "sk-12345678", "EMPTY": ""})
    assert redactor.text("sk-12345678") == "«redacted: API_KEY»"
    with pytest.raises(ConfigError, match="PIN"):
        Redactor(["PIN"], {"PIN": "1234"})
