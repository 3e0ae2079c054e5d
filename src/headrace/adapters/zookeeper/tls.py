"""TLS to ZooKeeper: the settings `zookeeper.ssl.*`, what Python needs of them, and what a failed handshake means."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import ConfigError

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


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a connection came to nothing, in words, and what to do. `is_final`: it does not pass with time."""

    what: str
    hint: str
    is_final: bool


def tls_of(given: Mapping[str, str]) -> Tls | None:
    """From the `zookeeper.*` settings without their prefix; None if it is off. `ConfigError` names what does not fit."""
    if _one_of(given, ENABLED, ("true", "false"), "false") == "false":
        for name in SETTINGS:
            if name in given and name != ENABLED:
                raise ConfigError(
                    f"zookeeper.{name} is set, and zookeeper.{ENABLED} is not", f"set zookeeper.{ENABLED}=true as well"
                )
        return None
    if (CERTIFICATE in given) != (KEY in given):
        named, missing = (CERTIFICATE, KEY) if CERTIFICATE in given else (KEY, CERTIFICATE)
        raise ConfigError(f"zookeeper.{named} is set, and zookeeper.{missing} is not", "a certificate and its key go together")
    if KEY_PASSWORD in given and KEY not in given:
        raise ConfigError(f"zookeeper.{KEY_PASSWORD} is set, and zookeeper.{KEY} is not", "the password opens the key's file")
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
                f"zookeeper.{CA}: {tls.ca} cannot be used: {_words(error)}", "expected a PEM file with one certificate or more"
            ) from None
    if tls.certificate is not None:
        try:  # a password in any case: without one OpenSSL asks at the terminal
            context.load_cert_chain(tls.certificate, tls.key, lambda: tls.key_password or "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"zookeeper.{CERTIFICATE} and .key.location: {tls.certificate} and {tls.key} cannot be used: {_words(error)}",
                f"expected PEM files of a certificate and of its own key; zookeeper.{KEY_PASSWORD} is for an encrypted one",
            ) from None
    return context


def failure_of(error: BaseException | None, server: str, tls: Tls | None) -> Failure:
    """What it means that a server's connection ended with this before it was of use.

    >>> failure_of(ConnectionResetError(), "zk-1:2181", None).what
    'zk-1:2181 closes each connection at once'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _ANOTHER_HOST:
            return Failure(
                f"the certificate of {server} is for another host: {_words(error)}",
                "use the name that is in the certificate as the address; or set "
                f"zookeeper.{CHECKED}=none, which takes any certificate that is trusted",
                True,
            )
        trusted = f"zookeeper.{CA}" if tls is not None and tls.ca is not None else f"this machine, as zookeeper.{CA} is not set"
        return Failure(
            f"the certificate of {server} is not trusted by {trusted}: {_words(error)}",
            f"set zookeeper.{CA} to a PEM file with the certificate of the authority that signed those of the servers",
            True,
        )
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "").upper():
        return Failure(
            f"{server} refuses the TLS handshake: {_words(error)}",
            f"where it requires a client's certificate, set zookeeper.{CERTIFICATE} and zookeeper.{KEY} to one that it trusts",
            True,
        )
    if tls is not None:
        return Failure(
            f"{server} closes each connection in the TLS handshake",
            f"use the servers' port for TLS (secureClientPort), or unset zookeeper.{ENABLED}; where they require a client's "
            f"certificate, set zookeeper.{CERTIFICATE} and zookeeper.{KEY}",
            False,
        )
    return Failure(
        f"{server} closes each connection at once",
        f"servers without a quorum do: check their logs. If it is their port for TLS, set zookeeper.{ENABLED}=true",
        False,
    )


def _one_of(given: Mapping[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    found = given.get(name, default)
    if found.lower() not in known:
        raise ConfigError(f"zookeeper.{name} = {found!r}: expected {' or '.join(known)}", f"unset it is {default}")
    return found.lower()


def _words(error: BaseException) -> str:
    """OpenSSL's own, or the system's, without codes and files.

    >>> _words(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or "a TLS error").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
