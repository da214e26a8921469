from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Pki:
    """An authority, a server's certificate and key of it, and a client's, as files in ``folder``."""

    authority: trustme.CA
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Pki":
        """Write ca.pem, cert.pem and key.pem (for 127.0.0.1), client.pem (with an RSA key)."""
        pki = cls(trustme.CA(), folder)
        pki.authority.cert_pem.write_to_path(folder / "ca.pem")
        pki.renew()
        names = ("prometheus.example", "127.0.0.9", "2001:db8::1")
        client = pki.authority.issue_cert(*names, key_type=trustme.KeyType.RSA)
        client.private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
        return pki

    def renew(self) -> None:
        server = self.authority.issue_cert("127.0.0.1")
        server.private_key_pem.write_to_path(self.folder / "key.pem")
        server.cert_chain_pems[0].write_to_path(self.folder / "cert.pem")


def write(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text, encoding="utf-8")
    return path
