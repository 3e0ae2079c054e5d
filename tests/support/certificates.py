"""Certificates for tests of TLS: an authority, a server and a client, as PEM files; and a ZooKeeper server with them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.adapters.common.server_process import free_ports
from headrace.adapters.zookeeper_server.server import ZooKeeperServer

_PEM, _PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


@dataclass(frozen=True)
class Certificates:
    """Files of one authority `ca`. `server` is for 127.0.0.1 alone, with its key in the same file; the client's key has
    `key_password`."""

    ca: Path
    server: Path
    client: Path
    client_key: Path
    key_password: str


def certificates(folder: Path, key_password: str = "tiger-key") -> Certificates:
    """New ones, below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(*(folder / name for name in ("ca.pem", "server.pem", "client.pem", "client.key")), key_password)
    ca_key, ca_name = ec.generate_private_key(ec.SECP256R1()), _name(f"authority of {folder.name}")
    ca = _certificate(ca_name, ca_key, ca_name, ca_key, x509.BasicConstraints(ca=True, path_length=None))
    made.ca.write_bytes(ca)
    server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    server = _certificate(_name("server"), server_key, ca_name, ca_key, names)
    made.server.write_bytes(server + server_key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption()))
    made.client.write_bytes(_certificate(_name("client"), client_key, ca_name, ca_key, None))
    locked = serialization.BestAvailableEncryption(key_password.encode())
    made.client_key.write_bytes(client_key.private_bytes(_PEM, _PKCS8, locked))
    return made


class Secured:
    """A ZooKeeper server with a port for TLS beside its plain one, and the user carol. `client_auth`: whether clients need a
    certificate."""

    def __init__(self, files: Certificates, client_auth: str) -> None:
        self.files, self.port = files, next(free_ports("127.0.0.1"))
        stores = {
            f"ssl.{store}Store.{part}": value
            for store, path in (("key", files.server), ("trust", files.ca))
            for part, value in (("location", str(path)), ("type", "PEM"))
        }
        secure = {
            "secureClientPort": str(self.port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth": client_auth,
        }
        self.server = ZooKeeperServer(users={"carol": "tiger-carol"}, settings=secure | stores)

    @property
    def trusting(self) -> dict[str, str]:
        return {"ssl.enabled": "true", "ssl.ca.location": str(self.files.ca)}

    @property
    def known(self) -> dict[str, str]:
        """With the client's certificate."""
        files = self.files
        mine = {"ssl.certificate.location": str(files.client), "ssl.key.location": str(files.client_key)}
        return self.trusting | mine | {"ssl.key.password": files.key_password}


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    by: x509.Name,
    by_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType | None,
) -> bytes:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=30))
    if extension is not None:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(by_key, hashes.SHA256()).public_bytes(_PEM)
