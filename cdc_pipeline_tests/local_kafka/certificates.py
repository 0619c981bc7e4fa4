"""Temporary certificates from the JDK's keytool: a certificate authority, a server and a client certificate."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.java import require_java

_PASSWORD = "throw-away"  # keytool requires six characters
_SECONDS = 60.0
# fast to create, supported by Java and OpenSSL
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-sigalg", "SHA256withECDSA", "-validity", "3650")
_FAST_START = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")


@dataclass(frozen=True)
class Certificates:
    """Paths of the files."""

    ca: Path
    """PEM: `ssl.ca.location` of librdkafka, or `ssl.truststore.location` of Java with `ssl.truststore.type=PEM`."""
    server_store: Path
    """PKCS12 with `password`, like `client_store`."""
    client_store: Path
    client_certificate: Path
    """PEM."""
    client_key: Path
    """PEM without password."""
    password: str = _PASSWORD


def create_certificates(folder: Path) -> Certificates:
    """Creates an authority and its certificates in `folder` and overwrites existing ones.

    The server certificate is for 127.0.0.1 and localhost. Raises JavaError without Java, TransientError with the
    message of keytool if it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keytool = require_java().path.resolve().parent / "keytool"
    authority = folder / "ca.p12"
    authority.unlink(missing_ok=True)
    ca = folder / "ca.pem"
    certificates = Certificates(
        ca=ca,
        server_store=folder / "server.p12",
        client_store=folder / "client.p12",
        client_certificate=folder / "client.pem",
        client_key=folder / "client-key.pem",
    )
    _run(
        *(keytool, "-genkeypair", "-alias", "ca", "-dname", "CN=cdc_pipeline throw-away authority", *_KEY),
        *("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign", "-keystore", str(authority)),
    )
    # each starts a JVM for half a second, and they are independent
    with ThreadPoolExecutor(3) as pool:
        futures = [
            pool.submit(
                _run, keytool, "-exportcert", "-rfc", "-alias", "ca", "-keystore", str(authority), "-file", str(ca)
            ),
            pool.submit(
                _sign, keytool, authority, certificates.server_store, "localhost", "san=ip:127.0.0.1,dns:localhost"
            ),
            pool.submit(_sign, keytool, authority, certificates.client_store, "client", "eku=clientAuth"),
        ]
        for future in futures:
            future.result()
    key, certificate, _chain = load_key_and_certificates(certificates.client_store.read_bytes(), _PASSWORD.encode())
    if key is None or certificate is None:
        raise TransientError(f"keytool wrote no key to {certificates.client_store}")
    certificates.client_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificates.client_certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    return certificates


def _sign(keytool: Path, authority: Path, store: Path, name: str, extension: str) -> None:
    """Creates `store` with a key and its certificate.

    keytool signs only within a store, so `store` starts as a copy of the authority's. The authority's key is deleted from
    it, because a broker with two keys may present either.
    """
    shutil.copyfile(authority, store)
    _run(
        *(keytool, "-genkeypair", "-alias", name, "-dname", f"CN={name}", *_KEY, "-ext", extension),
        *("-signer", "ca", "-keystore", str(store)),
    )
    _run(keytool, "-delete", "-alias", "ca", "-keystore", str(store))


def _run(keytool: Path, *arguments: str) -> None:
    try:
        completed = subprocess.run(
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
        raise TransientError(f"keytool {arguments[0]} did not finish in {_SECONDS:g} s") from None
    except OSError as error:
        raise TransientError(f"{keytool} cannot be run ({error.strerror})") from None
    if completed.returncode != 0:
        lines = [line.strip() for line in completed.stdout.splitlines() if line.strip()] or ["no output"]
        raise TransientError(f"keytool {arguments[0]}: {next((line for line in lines if 'rror' in line), lines[-1])}")
