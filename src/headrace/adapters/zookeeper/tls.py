"""TLS to ZooKeeper: the settings `zookeeper.ssl.*`, what Python needs of them, and what a failed handshake means."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import ConfigError, UnavailableError

ENABLED, CHECKED = "ssl.enabled", "ssl.endpoint.identification.algorithm"
CA, CERTIFICATE, KEY, KEY_PASSWORD = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"
SETTINGS = (CA, CERTIFICATE, CHECKED, ENABLED, KEY, KEY_PASSWORD)
_ANOTHER_HOST = (62, 64)  # OpenSSL's codes of a certificate that is for another name, or another address


@dataclass(frozen=True, slots=True)
class Tls:
    """Files are PEM. `ca`: of the authorities that are trusted, None for those of this machine. `checks_host`: a server's
    certificate must be for its host too."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True


def tls_of(given: Mapping[str, str]) -> Tls | None:
    """From the `zookeeper.*` settings without their prefix; None if it is off. `ConfigError` names what does not fit."""
    if _one_of(given, ENABLED, ("true", "false"), "false") == "false":
        for name in SETTINGS:
            if name in given and name != ENABLED:
                raise ConfigError(
                    f"zookeeper.{name} is set, and zookeeper.ssl.enabled is not", "set zookeeper.ssl.enabled=true as well"
                )
        return None
    if (CERTIFICATE in given) != (KEY in given):
        named, missing = (CERTIFICATE, KEY) if CERTIFICATE in given else (KEY, CERTIFICATE)
        raise ConfigError(f"zookeeper.{named} is set, and zookeeper.{missing} is not", "a certificate and its key go together")
    if KEY_PASSWORD in given and KEY not in given:
        raise ConfigError(
            "zookeeper.ssl.key.password is set, and zookeeper.ssl.key.location is not", "the password opens the key's file"
        )
    for name in (CA, CERTIFICATE, KEY):
        if name in given and not Path(given[name]).is_file():
            raise ConfigError(
                f"zookeeper.{name}: there is no file {given[name]}", "give the path of a file that this user can read"
            )
    checks = _one_of(given, CHECKED, ("https", "none"), "https") == "https"
    return Tls(given.get(CA), given.get(CERTIFICATE), given.get(KEY), given.get(KEY_PASSWORD), checks)


def context_of(tls: Tls) -> ssl.SSLContext:
    """What Python's TLS needs. `ConfigError` naming the file that it cannot use. If `ca` is given, nothing else is trusted: not
    what this machine trusts besides."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host
    if tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        try:
            context.load_verify_locations(tls.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"zookeeper.ssl.ca.location: {tls.ca} cannot be used: {words_of(error)}",
                "expected a PEM file with one certificate or more",
            ) from None
    if tls.certificate is not None:
        try:  # a password in any case: without one OpenSSL asks at the terminal
            context.load_cert_chain(tls.certificate, tls.key, lambda: tls.key_password or "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"zookeeper.ssl.certificate.location {tls.certificate} and .key.location {tls.key} cannot be used: "
                f"{words_of(error)}",
                "expected PEM files of a certificate and of its own key; zookeeper.ssl.key.password is for an encrypted one",
            ) from None
    return context


def failure_of(error: BaseException | None, server: str, tls: Tls | None) -> ConfigError | UnavailableError:
    """What it means that a server's connection ended with this before it was of use: `ConfigError` for what does not pass with
    time.

    >>> failure_of(ConnectionResetError(), "zk-1:2181", None).message
    'zk-1:2181 closes each connection at once'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _ANOTHER_HOST:
            return ConfigError(
                f"ZooKeeper's certificate at {server} is for another host: {words_of(error)}",
                "use the name that is in the certificate as the address; or set "
                "zookeeper.ssl.endpoint.identification.algorithm=none, which takes any certificate that is trusted",
            )
        trusted = "zookeeper.ssl.ca.location" if tls is not None and tls.ca is not None else "this machine"
        return ConfigError(
            f"ZooKeeper's certificate at {server} is not trusted by {trusted}: {words_of(error)}",
            "set zookeeper.ssl.ca.location to a PEM file with the certificate of the authority that signed the servers'",
        )
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return ConfigError(
            f"ZooKeeper at {server} ends the TLS handshake: {words_of(error).rpartition('alert ')[2]}",
            "where it requires a client's certificate, set zookeeper.ssl.certificate.location and zookeeper.ssl.key.location "
            "to one that it trusts",
        )
    if tls is not None:
        return UnavailableError(
            f"{server} closes each connection in the TLS handshake",
            "use the servers' port for TLS (secureClientPort), or unset zookeeper.ssl.enabled; where they require a client's "
            "certificate, set zookeeper.ssl.certificate.location and zookeeper.ssl.key.location",
        )
    return UnavailableError(
        f"{server} closes each connection at once",
        "servers without a quorum do: look at their logs. If it is their port for TLS, set zookeeper.ssl.enabled=true",
    )


def _one_of(given: Mapping[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    found = given.get(name, default)
    if found.lower() not in known:
        raise ConfigError(f"zookeeper.{name} = {found!r}: expected {' or '.join(known)}", f"unset it is {default}")
    return found.lower()


def words_of(error: BaseException) -> str:
    """OpenSSL's own, or the system's, without codes and files.

    >>> words_of(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or "a TLS error").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
