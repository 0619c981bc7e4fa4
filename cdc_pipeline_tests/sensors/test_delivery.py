"""Channels that answer, hang, fail or refuse, on real sockets."""

from __future__ import annotations

import smtplib
import socket
import time
from dataclasses import replace
from email import message_from_string
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.sensors import delivery
from cdc_pipeline.sensors.alerts import Alert, Place
from cdc_pipeline.sensors.delivery import DeliveryError, Email, JsonWebhook, SlackWebhook, deliver
from cdc_pipeline.sensors.messages import Message
from cdc_pipeline.sensors.notify_state import NotifyState
from cdc_pipeline.sources.kafka.secret_text import SecretText
from cdc_pipeline_tests.support.servers.webhook import HANGS, MailServer, Webhook, server_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdc_pipeline.sensors.delivery import Channel, SmtpType

_PLACE = Place("asset shop/consistent_cuts", "assets/shop/consistent_cuts")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "ANSWER_SECONDS", 0.3)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as found:
        yield found


def _alert(line: str = "shop.orders: a <b> & c") -> Alert:
    return Alert("shop", "gap", "began", 1.0, _PLACE, (line,))


def _state(channels: list[Channel], *lines: str) -> NotifyState:
    return NotifyState().with_alerts([_alert(line) for line in lines], tuple(channel.name for channel in channels))


def _slack(webhook: Webhook) -> SlackWebhook:
    return SlackWebhook(SecretText(webhook.url))


def test_slack_gets_escaped_text(webhook: Webhook) -> None:
    _slack(webhook).send(Message(_alert(), "https://ui"))
    (body,) = webhook.received
    assert body.keys() == {"text"}
    assert "• shop.orders: a &lt;b&gt; &amp; c\n" in body["text"]
    assert body["text"].endswith("\nhttps://ui/assets/shop/consistent_cuts")


def test_json_webhook_gets_all_fields(webhook: Webhook) -> None:
    message = Message(_alert(), "https://ui", 3)
    JsonWebhook(SecretText(webhook.url)).send(message)
    assert webhook.received == [message.fields]


def test_mail() -> None:
    with MailServer() as server:
        mail = Email("from@x.org", ("a@x.org", "b@x.org"), "127.0.0.1", "NONE", server.port)
        mail.send(Message(_alert("表 shop.orders")))
    (text,) = server.mails
    found = message_from_string(text)
    assert (found["Subject"], found["From"], found["To"]) == ("shop: gap opened", "from@x.org", "a@x.org, b@x.org")
    payload = found.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert "• 表 shop.orders" in payload.decode()
    assert server.recipients == ["a@x.org", "b@x.org"]


@pytest.mark.parametrize("kind", ["SSL", "STARTTLS"])
def test_mail_with_encryption_and_login(kind: SmtpType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, context = server_certificate(tmp_path)
    with MailServer(context, encrypted=kind == "SSL") as server:
        password = SecretText("hunter2")
        mail = Email("from@x.org", ("a@x.org",), "127.0.0.1", kind, server.port, email_password=password)
        assert _error(mail) == "its certificate is not valid"
        assert server.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        mail.send(Message(_alert()))
        replace(mail, smtp_user="me").send(Message(_alert()))
    assert server.logins == [("from@x.org", "hunter2"), ("me", "hunter2")]
    assert len(server.mails) == 2


def test_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, context = server_certificate(tmp_path)
    with Webhook(tls=context) as webhook:
        assert _error(_slack(webhook)) == "its certificate is not valid"
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        _slack(webhook).send(Message(_alert()))
        assert len(webhook.received) == 1


# ---- failures


def _error(channel: Channel) -> str:
    with pytest.raises(DeliveryError) as error:
        channel.send(Message(_alert()))
    assert "hunter2" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("status", [302, 403, 404, 429, 500])
def test_http_status(status: int, webhook: Webhook) -> None:
    """A redirect is not followed: the POST would become a GET."""
    webhook.status = status
    assert _error(_slack(webhook)) == f"HTTP status {status}"
    assert webhook.requests == 1


def test_no_answer(webhook: Webhook) -> None:
    webhook.status = HANGS
    assert _error(_slack(webhook)) == "no answer within 0.3 s"


def test_closed_port_and_unknown_host() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert _error(SlackWebhook(SecretText(f"http://127.0.0.1:{port}/hunter2"))) == "Connection refused"
    assert _error(SlackWebhook(SecretText("http://hunter2.invalid/hunter2"))) == "its host is unknown"
    assert _error(Email("a@x.org", ("b@x.org",), "127.0.0.1", "NONE", port)) == "Connection refused"


def test_https_to_a_server_without_it(webhook: Webhook) -> None:
    assert _error(JsonWebhook(SecretText(webhook.url.replace("http:", "https:")))) in ("SSLError", "SSLEOFError")


def test_refused_login(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: smtplib.SMTP, user: str, password: str) -> None:
        raise smtplib.SMTPAuthenticationError(535, f"{user} {password}".encode())

    monkeypatch.setattr(smtplib.SMTP, "login", refuse)
    with MailServer() as server:
        mail = Email("a@x.org", ("b@x.org",), "127.0.0.1", "NONE", server.port, email_password=SecretText("hunter2"))
        assert _error(mail) == "SMTPAuthenticationError, SMTP status 535"


def test_refused_recipient_of_a_mail_that_others_got() -> None:
    with MailServer() as server:
        server.refused = "b@x.org"
        channels: list[Channel] = [Email("from@x.org", ("a@x.org", "b@x.org"), "127.0.0.1", "NONE", server.port)]
        found = deliver(channels, _state(channels, "one", "two"), "")["email"]
        assert (found.sent, found.error) == ([0, 1], "the server refused b@x.org (SMTP status 550)")
        server.refused = "a@x.org"
        only: list[Channel] = [Email("from@x.org", ("a@x.org",), "127.0.0.1", "NONE", server.port)]
        found = deliver(only, _state(only, "one"), "")["email"]
        assert (found.sent, found.error) == ([], "SMTPRecipientsRefused")
    assert server.recipients == ["a@x.org", "a@x.org"]


def test_mail_is_delivered_if_the_server_ends_badly() -> None:
    with MailServer() as server:
        server.quits = False
        channels: list[Channel] = [Email("from@x.org", ("a@x.org",), "127.0.0.1", "NONE", server.port)]
        found = deliver(channels, _state(channels, "one"), "")["email"]
        assert (found.sent, found.error) == ([0], "")
    assert len(server.mails) == 1


def test_secrets_are_hidden() -> None:
    mail = Email("a@x.org", ("b@x.org",), "mail", email_password=SecretText("hunter2"))
    shown = repr((SlackWebhook(SecretText("https://hunter2")), JsonWebhook(SecretText("https://hunter2")), mail))
    assert "hunter2" not in shown
    assert shown.count("***") == 3


# ---- several messages and channels


def test_a_channel_that_hangs_does_not_delay_another(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "ANSWER_SECONDS", 20)
    with Webhook(HANGS) as hanging:
        channels: list[Channel] = [JsonWebhook(SecretText(hanging.url)), _slack(webhook)]
        started = time.monotonic()
        found = deliver(channels, _state(channels, "one", "two"), "", seconds=1)
        assert time.monotonic() - started < 5
    assert found["slack_url"].sent == [0, 1]
    assert (found["webhook_url"].sent, found["webhook_url"].error) == ([], "too slow")
    assert len(webhook.received) == 2


def test_a_channel_that_does_not_answer_is_tried_once(webhook: Webhook) -> None:
    webhook.status = HANGS
    channels: list[Channel] = [_slack(webhook)]
    found = deliver(channels, _state(channels, "one", "two", "three"), "")
    assert found["slack_url"].error == "no answer within 0.3 s"
    assert webhook.requests == 1


def test_a_message_that_is_refused_does_not_hold_back_the_next(webhook: Webhook) -> None:
    class Picky(SlackWebhook):
        def send(self, message: Message) -> str:
            webhook.status = 400 if "one" in message.text else 200
            return super().send(message)

    channels: list[Channel] = [Picky(SecretText(webhook.url))]
    found = deliver(channels, _state(channels, "one", "two"), "")
    assert (found["slack_url"].sent, found["slack_url"].error) == ([1], "HTTP status 400")


def test_a_bug_in_a_channel_is_an_error_of_this_channel(webhook: Webhook) -> None:
    class Broken(JsonWebhook):
        def send(self, message: Message) -> str:
            raise ZeroDivisionError("hunter2")

    channels: list[Channel] = [Broken(SecretText("https://x")), _slack(webhook)]
    found = deliver(channels, _state(channels, "one"), "")
    assert found["webhook_url"].error == "ZeroDivisionError"
    assert found["slack_url"].sent == [0]


def test_the_number_of_dropped_messages_is_sent_once(webhook: Webhook) -> None:
    channels: list[Channel] = [_slack(webhook)]
    state = NotifyState(dropped={"slack_url": 4}).with_alerts([_alert("one"), _alert("two")], ("slack_url",))
    deliver(channels, state, "")
    assert ["4 earlier alerts" in body["text"] for body in webhook.received] == [True, False]
