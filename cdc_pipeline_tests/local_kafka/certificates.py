"""Throw-away certificates, made with the JDK's keytool: an authority, and one certificate each for server and client."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.java import require_java

if TYPE_CHECKING:
    from pathlib import Path

_PASSWORD = "throw-away"  # keytool asks for six characters
_SECONDS = 60.0
# fast to make, and known to Java and OpenSSL alike
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-sigalg", "SHA256withECDSA", "-validity", "3650")
_FAST_START = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")


@dataclass(frozen=True)
class Certificates:
    """Where they are. The stores are PKCS12 under `password`; the others are PEM, the client's key without a password.

    `ca` is for `ssl.ca.location` of librdkafka, and with `ssl.truststore.type=PEM` for `ssl.truststore.location` of
    Java.
    """

    ca: Path
    server_store: Path
    client_store: Path
    client_certificate: Path
    client_key: Path
    password: str = _PASSWORD


def made_certificates(folder: Path) -> Certificates:
    """A new authority with its certificates, in `folder`, in place of those of an earlier call. The server's is for
    127.0.0.1 and localhost.

    Raises JavaError where there is no Java, TransientError with keytool's own words where that fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keytool = require_java().path.resolve().parent / "keytool"
    authority = folder / "ca.p12"
    authority.unlink(missing_ok=True)
    made = Certificates(
        ca=folder / "ca.pem",
        server_store=folder / "server.p12",
        client_store=folder / "client.p12",
        client_certificate=folder / "client.pem",
        client_key=folder / "client-key.pem",
    )
    _run(
        *(keytool, "-genkeypair", "-alias", "ca", "-dname", "CN=cdc_pipeline throw-away authority", *_KEY),
        *("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign", "-keystore", str(authority)),
    )
    # each is a JVM that lives for half a second, and they do not need one another
    with ThreadPoolExecutor(3) as pool:
        waited = [
            pool.submit(
                _run, keytool, "-exportcert", "-rfc", "-alias", "ca", "-keystore", str(authority), "-file", str(made.ca)
            ),
            pool.submit(_sign, keytool, authority, made.server_store, "localhost", "san=ip:127.0.0.1,dns:localhost"),
            pool.submit(_sign, keytool, authority, made.client_store, "client", "eku=clientAuth"),
        ]
        for step in waited:
            step.result()
    key, certificate, _chain = load_key_and_certificates(made.client_store.read_bytes(), _PASSWORD.encode())
    if key is None or certificate is None:
        raise TransientError(f"keytool left no key in {made.client_store}")
    made.client_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    made.client_certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    return made


def _sign(keytool: Path, authority: Path, store: Path, name: str, extension: str) -> None:
    """Makes `store` with a key and its certificate. keytool signs only within one store, so it begins as the authority's
    copy, which it must not stay: a broker with two keys may show either."""
    shutil.copyfile(authority, store)
    _run(
        *(keytool, "-genkeypair", "-alias", name, "-dname", f"CN={name}", *_KEY, "-ext", extension),
        *("-signer", "ca", "-keystore", str(store)),
    )
    _run(keytool, "-delete", "-alias", "ca", "-keystore", str(store))


def _run(keytool: Path, *arguments: str) -> None:
    try:
        ended = subprocess.run(
            [str(keytool), *_FAST_START, *arguments, "-storetype", "PKCS12", "-storepass", _PASSWORD],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TransientError(f"keytool {arguments[0]} gave no answer in {_SECONDS:g} s") from None
    except OSError as error:
        raise TransientError(f"{keytool} cannot be run ({error.strerror})") from None
    if ended.returncode != 0:
        said = [line.strip() for line in ended.stdout.splitlines() if line.strip()] or ["no output"]
        raise TransientError(f"keytool {arguments[0]}: {next((line for line in said if 'rror' in line), said[-1])}")
