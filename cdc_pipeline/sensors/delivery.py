"""Delivery of messages: webhooks and e-mail, with timeouts. No error contains a URL, a password or an answer."""

from __future__ import annotations

import json
import os
import smtplib
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cdc_pipeline.sensors.messages import Message
from cdc_pipeline.sources.kafka.secret_text import SecretText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.sensors.notify_state import NotifyState

ANSWER_SECONDS = 5.0
"""Timeout of a connection attempt, and of each answer."""
DELIVERY_SECONDS = 20.0
"""Time limit of all messages of a tick. Dagster limits a sensor to 60 s (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS)."""
SmtpType = Literal["SSL", "STARTTLS", "NONE"]
DEFAULT_PORTS: dict[SmtpType, int] = {"SSL": 465, "STARTTLS": 587, "NONE": 25}
_MESSAGE_REJECTED = {400, 413, 422}
"""HTTP statuses that may concern one message only, so that the others are tried."""


class DeliveryError(Exception):
    """Why a channel did not take a message. `only_this`: the next message may pass."""

    def __init__(self, reason: str, *, only_this: bool = False) -> None:
        super().__init__(reason)
        self.only_this = only_this


class Channel(Protocol):
    @property
    def name(self) -> str:
        """Field of `notify`, and name in the cursor."""

    def send(self, message: Message) -> str:
        """Returns what to report of a message that was taken, or nothing. Raises DeliveryError if it was not taken."""


@dataclass(frozen=True)
class SlackWebhook:
    url: SecretText
    name: str = "slack_url"

    def send(self, message: Message) -> str:
        # Slack's own three escapes: other text in <> would be a link or a mention
        text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return _post(self.url, {"text": text})


@dataclass(frozen=True)
class JsonWebhook:
    url: SecretText
    name: str = "webhook_url"

    def send(self, message: Message) -> str:
        return _post(self.url, message.fields)


@dataclass(frozen=True)
class Email:
    """The parameters of `dagster.make_email_on_run_failure_sensor`."""

    email_from: str
    email_to: tuple[str, ...]
    smtp_host: str
    smtp_type: SmtpType = "SSL"
    smtp_port: int | None = None
    smtp_user: str = ""
    """Empty: `email_from`."""
    email_password: SecretText = field(default=SecretText(""))
    """Empty: no login."""
    name: str = "email"

    def send(self, message: Message) -> str:
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = message.title, self.email_from, ", ".join(self.email_to)
        mail.set_content(message.text)
        refused: dict[str, tuple[int, bytes]] | None = None
        try:
            with self._connect() as server:
                if self.email_password:
                    server.login(self.smtp_user or self.email_from, str(self.email_password))
                refused = server.send_message(mail)
        except Exception as error:
            # an error of QUIT is none of the mail: it would be sent again
            if refused is None:
                raise DeliveryError(_reason(error)) from None
        statuses = ", ".join(f"{address} (SMTP status {status})" for address, (status, _) in refused.items())
        return f"the server refused {statuses}" if statuses else ""

    def _connect(self) -> smtplib.SMTP:
        port = self.smtp_port or DEFAULT_PORTS[self.smtp_type]
        if self.smtp_type == "SSL":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.smtp_host, port, timeout=ANSWER_SECONDS, context=context)
        server = smtplib.SMTP(self.smtp_host, port, timeout=ANSWER_SECONDS)
        if self.smtp_type == "STARTTLS":
            try:
                server.starttls(context=ssl.create_default_context())
            except BaseException:
                server.close()
                raise
        return server


class _NoRedirects(HTTPRedirectHandler):
    """A redirected POST would become a GET without the message, and count as delivered."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, fields: dict[str, Any]) -> str:
    try:
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "cdc_pipeline"}
        request = Request(str(url), data=json.dumps(fields).encode(), headers=headers, method="POST")
        with build_opener(_NoRedirects).open(request, timeout=ANSWER_SECONDS):
            return ""
    except HTTPError as error:
        error.close()
        raise DeliveryError(f"HTTP status {error.code}", only_this=error.code in _MESSAGE_REJECTED) from None
    except Exception as error:
        raise DeliveryError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    """The kind of the error: its text may contain the URL or the server's answer."""
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:g} s"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{type(error).__name__}, SMTP status {error.smtp_code}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not valid"
    if isinstance(error, socket.gaierror):
        return "its host is unknown"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return type(error).__name__


@dataclass
class Delivery:
    """What became of the messages of one channel."""

    sent: list[int] = field(default_factory=list)
    """Indexes in `NotifyState.waiting`."""
    error: str = ""
    """Why messages wait, or which recipients the server refused."""


def deliver(
    channels: Sequence[Channel], state: NotifyState, ui_url: str, seconds: float = DELIVERY_SECONDS
) -> dict[str, Delivery]:
    """Sends the waiting messages to each channel, oldest first. Returns after `seconds` at the latest.

    Channels are independent: each has its thread, because name resolution and slow answers have no timeout. A message that
    arrives after the time limit is sent again in the next tick.
    """
    deadline = time.monotonic() + seconds
    found: dict[str, Delivery] = {}
    threads = []
    for channel in channels:
        waiting = [index for index, kept in enumerate(state.waiting) if channel.name in kept.channels]
        if waiting:
            delivery = found[channel.name] = Delivery()
            arguments = (channel, state, waiting, ui_url, delivery, deadline)
            # a daemon thread: a server that never answers must not keep the process alive
            threads.append(threading.Thread(target=_send_all, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    # copies, because threads that are late continue
    return {
        name: Delivery(list(delivery.sent), delivery.error or ("" if not thread.is_alive() else "too slow"))
        for (name, delivery), thread in zip(found.items(), threads, strict=True)
    }


def _send_all(
    channel: Channel, state: NotifyState, waiting: list[int], ui_url: str, delivery: Delivery, deadline: float
) -> None:
    for index in waiting:
        if time.monotonic() >= deadline:
            delivery.error = delivery.error or "too slow"
            return
        dropped = 0 if delivery.sent else state.dropped.get(channel.name, 0)
        try:
            delivery.error = channel.send(Message(state.waiting[index].alert, ui_url, dropped)) or delivery.error
        except DeliveryError as error:
            delivery.error = str(error)
            if not error.only_this:
                return
        except Exception as error:  # a bug in a channel must not lose the messages of the others
            delivery.error = type(error).__name__
            return
        else:
            delivery.sent.append(index)
