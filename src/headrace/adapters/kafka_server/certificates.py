"""The keys of a listener with TLS, made by Java's own `keytool`: an authority, and what it signed for the broker
and for a client."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from headrace.adapters.kafka_server.settings import HOST, TlsFiles
from headrace.errors import SetupError

KEYTOOL_S_MAX = 60
_QUICKLY = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")  # it runs a dozen times, for a moment each


def make_certificates(folder: Path, java: Path, password: str) -> TlsFiles:
    """Make all files in `folder`, which is made too. `SetupError` if `keytool` is missing or fails."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = java.resolve().with_name("keytool")
    keytool = str(beside) if beside.is_file() else "keytool"
    files = TlsFiles(folder / "ca.pem", folder / "broker.p12", folder / "trust.p12", folder / "client.p12", password)
    authority = folder / "ca.p12"

    def run(store: Path, *arguments: str) -> None:
        kept = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass:env", "HEADRACE_STORE")
        _run([keytool, *arguments, *kept, *_QUICKLY], password)

    def make_key(store: Path, alias: str, name: str, *extensions: str) -> None:
        extended = [argument for extension in extensions for argument in ("-ext", extension)]
        run(store, "-genkeypair", "-alias", alias, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365",
            "-dname", f"CN={name}", *extended)  # fmt: skip

    make_key(authority, "ca", "headrace-test-authority", "bc:c", "ku:c=keyCertSign,cRLSign")
    run(authority, "-exportcert", "-rfc", "-alias", "ca", "-file", str(files.ca_pem))
    run(files.trust_store, "-importcert", "-noprompt", "-alias", "ca", "-file", str(files.ca_pem))
    for store, name, extension in (
        (files.key_store, "broker", f"san=ip:{HOST},dns:localhost"),
        (files.client_key_store, "client", "eku=clientAuth"),
    ):
        request, signed = folder / f"{name}.csr", folder / f"{name}.pem"
        make_key(store, name, name)
        run(store, "-certreq", "-alias", name, "-file", str(request))
        run(authority, "-gencert", "-rfc", "-alias", "ca", "-ext", extension, "-validity", "365",
            "-infile", str(request), "-outfile", str(signed))  # fmt: skip
        run(store, "-importcert", "-noprompt", "-alias", "ca", "-file", str(files.ca_pem))
        run(store, "-importcert", "-noprompt", "-alias", name, "-file", str(signed))
    return files


def _run(command: Sequence[str], password: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={"HEADRACE_STORE": password, "PATH": "/usr/bin:/bin"},
            timeout=KEYTOOL_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{command[0]} cannot be run: {error}", "it comes with Java: install a whole one") from None
    if done.returncode != 0:
        raise SetupError(f"{command[0]} {command[1]} failed: {(done.stdout + done.stderr).strip()[-300:]}")
