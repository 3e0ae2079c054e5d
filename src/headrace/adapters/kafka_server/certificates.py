"""The keys of a listener with TLS, made by Java's own `keytool`: the broker and the client each sign their own."""

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
    files = TlsFiles(folder / "broker.pem", folder / "broker.p12", folder / "trust.p12", folder / "client.p12", password)

    def run(store: Path, *arguments: str) -> None:
        kept = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass:env", "HEADRACE_STORE")
        _run([keytool, *arguments, *kept, *_QUICKLY], password)

    names = {files.key_store: ("broker", f"san=ip:{HOST},dns:localhost"), files.client_key_store: ("client", "eku=clientAuth")}
    for store, (name, extension) in names.items():
        run(store, "-genkeypair", "-alias", name, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365",
            "-dname", f"CN={name}", "-ext", extension)  # fmt: skip
        run(store, "-exportcert", "-rfc", "-alias", name, "-file", str(folder / f"{name}.pem"))
    run(files.trust_store, "-importcert", "-noprompt", "-alias", "client", "-file", str(folder / "client.pem"))
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
