"""The fields `security`, `options` and `sensor_options` of the source `kafka`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import AfterValidator, ConfigDict, PlainSerializer, model_validator

from cdc_pipeline.component.yaml_model import YamlModel, render_template, secret_resolver
from cdc_pipeline.sources.kafka.client_settings import HIDDEN, SecretText, is_secret

_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_TOGETHER = ((("mechanism", "username", "password"), "SASL"), (("certificate", "key"), "SSL"), (("ca",), "SSL"))
"""Fields that need each other, and a part of the protocols that use them."""
Options = Annotated[
    dict[str, str | int | float | bool],
    PlainSerializer(
        lambda options: {name: HIDDEN if is_secret(name) else value for name, value in options.items()},
        when_used="json",
    ),
]
Secret = Annotated[
    str, AfterValidator(SecretText), PlainSerializer(lambda text: HIDDEN if text else "", when_used="json")
]


class SecuritySettings(YamlModel):
    """TLS and login of both clients. Certificates and keys are PEM: the path of a file, or its text."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of the listener."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism. For others use options and sensor_options."""
    username: Annotated[str, secret_resolver("source.security.username")] = ""
    """User of the login."""
    password: Annotated[Secret, secret_resolver("source.security.password")] = ""
    """Secret: password of the login, from the environment."""
    ca: str = ""
    """Certificates of the authorities that sign the brokers' certificates."""
    # its file may contain the key
    certificate: Secret = ""
    """Certificate of the client."""
    key: Annotated[Secret, secret_resolver("source.security.key")] = ""
    """Private key of the client in PKCS#8 (BEGIN PRIVATE KEY). Its text is a secret."""

    @model_validator(mode="after")
    def _validate_fields(self) -> SecuritySettings:
        for names, needed in _TOGETHER:
            given = [name for name in names if getattr(self, name)]
            if given and len(given) < len(names):
                (missing, *_) = (name for name in names if name not in given)
                raise ValueError(f"{given[0]} needs {missing}, which is missing or empty")
            if given and needed not in self.protocol:
                expected = "SASL_SSL or SASL_PLAINTEXT" if needed == "SASL" else "SSL or SASL_SSL"
                raise ValueError(f"protocol {self.protocol} ignores {given[0]}: {expected} is expected")
        return self


def options_resolver(field: str) -> dg.Resolver:
    """Resolves a mapping of settings with its templates rendered. Errors contain the setting's name, but no value."""

    def resolve(context: dg.ResolutionContext, model: Any) -> Options:
        if not isinstance(model, dict):
            raise ValueError(f"{field}: a mapping of settings is expected")
        options: Options = {}
        for name, value in model.items():
            try:
                options[name] = render_template(context, value) if isinstance(value, str) else value
            except Exception as error:
                raise ValueError(f"{field}: {name!r} cannot be rendered: {error}") from None
        return options

    return dg.Resolver(resolve, model_field_type=Options)


def validate_options(value: Options) -> Options:
    """The options as Kafka's clients read them: lower-case names without Spark's prefix, values as text.

    Raises ValueError if one names brokers, which the other client would not see.
    """
    texts = {
        name.lower().removeprefix("kafka."): str(option).lower() if isinstance(option, bool) else str(option)
        for name, option in value.items()
    }
    for name in _BROKERS:
        if name in texts:
            raise ValueError(f"{name!r} cannot be set here: set the source's field bootstrap_servers instead")
    return {name: SecretText(text) if is_secret(name) else text for name, text in texts.items()}
