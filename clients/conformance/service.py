"""The service of a case: one process of tollgate, or several, each behind a proxy."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from pathlib import Path

from proxy import Fault, Proxy

# Bound of waits for other processes on a busy machine.
PATIENCE = 60


class Tollgate:
    """A process on free ports, whose counters are in its memory."""

    def __init__(self, process: asyncio.subprocess.Process, grpc: tuple[str, int], http: str):
        self.process = process
        self.grpc = grpc
        self.http = http

    @classmethod
    async def start(cls, program: Path, policy: Path, flags: list[str]) -> "Tollgate":
        """Starts it, and waits until it listens."""
        listen = [f"--{kind}-listen=127.0.0.1:0" for kind in ("grpc", "http", "admin")]
        arguments = ["serve", "--policy", str(policy), "--log-format", "json", "--drain-delay", "0s", *listen, *flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLGATE_")}
        process = await asyncio.create_subprocess_exec(
            str(program), *arguments, stderr=asyncio.subprocess.PIPE, env=environment
        )
        log, addresses = [], {}
        while addresses.keys() < {"grpc", "http"}:
            line = await asyncio.wait_for(process.stderr.readline(), PATIENCE)
            if not line:
                raise RuntimeError("tollgate ended: " + "".join(log))
            log.append(line.decode())
            fields = json.loads(line)["fields"]
            if fields.get("message") == "listening":
                addresses[fields["protocol"]] = fields["address"]
        host, port = addresses["grpc"].rsplit(":", 1)
        service = cls(process, (host, int(port)), addresses["http"])
        service._log = asyncio.create_task(service._drain_log())
        return service

    async def _drain_log(self) -> None:
        while await self.process.stderr.readline():
            pass

    async def remaining(self, domain: str, descriptor: str) -> int:
        """Returns the remaining hits of a descriptor, `key=value,key=value`, without taking any."""
        entries = [dict(zip(("key", "value"), entry.split("=", 1))) for entry in descriptor.split(",")]
        request = {"domain": domain, "descriptors": [{"entries": entries, "hitsAddend": "0"}]}
        answer = await asyncio.to_thread(post, f"http://{self.http}/json", request)
        return answer["statuses"][0].get("limitRemaining", 0)

    async def stop(self) -> None:
        """Ends it."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._log


def post(url: str, message: dict) -> dict:
    """Returns the answer to a request in JSON, which may be a denial."""
    request = urllib.request.Request(url, json.dumps(message).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


class Replicas:
    """The processes of a case and their proxies, on one port and several addresses of the loopback interface."""

    def __init__(self):
        self.services: list[Tollgate] = []
        self.proxies: list[Proxy] = []
        self.target = ""
        # The file with the certificate that clients trust; empty without TLS.
        self.ca = ""

    @classmethod
    async def start(cls, program: Path, policy: Path, case: dict) -> "Replicas":
        """Starts the processes and proxies of a case."""
        count = case.get("replicas", 1)
        replicas = cls()
        flags = [str(flag) for flag in case.get("flags", [])]
        if case.get("tls"):
            certificate, key = await make_certificate(policy.parent)
            flags += ["--grpc-tls-cert", str(certificate), "--grpc-tls-key", str(key)]
        for _ in range(count):
            replicas.services.append(await Tollgate.start(program, policy, flags))
        port = 0
        for number, service in enumerate(replicas.services, 1):
            proxy = Proxy(service.grpc, fault(case.get("network")))
            port = await proxy.start(f"127.0.0.{number}", port)
            replicas.proxies.append(proxy)
        if case.get("tls"):
            # The proxy reads frames, which are encrypted.
            replicas.target = "{}:{}".format(*replicas.services[0].grpc)
            replicas.ca = str(certificate)
            return replicas
        replicas.target = f"dns:///tollgate.test:{port}" if count > 1 else f"127.0.0.1:{port}"
        return replicas

    async def stop(self) -> None:
        """Ends all."""
        for proxy in self.proxies:
            await proxy.close()
        for service in self.services:
            await service.stop()


async def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Makes a certificate that signs itself, for 127.0.0.1. Returns its file and that of its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    arguments = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    arguments += ["-subj", "/CN=tollgate", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl = await asyncio.create_subprocess_exec(
        "openssl", *arguments, "-keyout", str(key), "-out", str(certificate), stderr=asyncio.subprocess.DEVNULL
    )
    assert await openssl.wait() == 0, "openssl makes no certificate"
    return certificate, key


def fault(written: dict | None) -> Fault:
    """Returns the fault of a case, such as `{ cut_after: 1 }`."""
    if not written:
        return Fault()
    (kind, value), = written.items()
    if kind == "delay":
        return Fault(kind, ms=value)
    if kind == "code":
        return Fault(kind, code=value)
    return Fault(kind, times=None if value is True else value)
