"""What the server's refusals mean (JOURNAL.md, Append), and what an ack subject holds."""

import pytest

from agentbook.broker.api import refusal
from agentbook.broker.handshake import check_version
from agentbook.broker.outcomes import (
    PublishError,
    StreamFull,
    SubjectFull,
    TooLarge,
    Undecided,
    WrongLastSequence,
)
from agentbook.broker.pull import ack_numbers
from agentbook.errors import ServerTooOld


@pytest.mark.parametrize(
    ("code", "error", "text", "kind"),
    [
        (400, 10071, "wrong last sequence: 4", WrongLastSequence),
        (400, 10164, "wrong last sequence", WrongLastSequence),
        (503, 10077, "maximum messages per subject exceeded", SubjectFull),
        (503, 10077, "maximum messages exceeded", StreamFull),
        (503, 10077, "maximum bytes exceeded", StreamFull),
        (503, 10077, "write 1.blk: no space left on device", StreamFull),
        (503, 10077, "store is closed", Undecided),
        (500, 10047, "insufficient storage resources available", StreamFull),
        (503, 10023, "insufficient resources", StreamFull),
        (400, 10002, "resource limits exceeded for account", StreamFull),
        (400, 10054, "message size exceeds maximum allowed", TooLarge),
        (503, 10008, "JetStream system temporarily unavailable", Undecided),
        (409, 10158, "duplicate message id is in process", Undecided),
        (429, 10167, "too many requests", Undecided),
    ],
)
def test_each_refusal_of_a_publish_has_one_meaning(code, error, text, kind):
    assert type(refusal(code, error, text, 10, 5)) is kind


def test_a_refusal_without_a_meaning_of_its_own_keeps_code_and_text():
    refused = refusal(400, 10165, "message TTL invalid", 10, 5)
    assert type(refused) is PublishError
    assert (refused.code, str(refused)) == (10165, "message TTL invalid")


@pytest.mark.parametrize("version", ["2.11.9", "2.9.0", "1.4.1", "0", "2.11.0-RC.1"])
def test_x3_too_old_a_server_is_refused_with_both_versions(version):
    with pytest.raises(ServerTooOld) as refused:
        check_version(version)
    assert version in str(refused.value)
    assert "2.12" in str(refused.value)


@pytest.mark.parametrize("version", ["2.12.0", "2.12.0-RC.2", "2.15.1", "3.0.0"])
def test_a_server_with_message_schedules_is_accepted(version):
    check_version(version)


def test_ack_numbers_are_read_with_and_without_a_domain():
    plain = ack_numbers("$JS.ACK.S.C.3.17.5.1796077641725134435.0")
    with_domain = ack_numbers("$JS.ACK.hub.accounthash.S.C.3.17.5.1796077641725134435.0.token")
    assert plain == with_domain == (3, 17, 5)
