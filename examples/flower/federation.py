"""A whole federation on this machine: certificates, a SuperLink, SuperNodes, all on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"


class Federation:
    """A SuperLink with TLS that admits registered nodes only, and its SuperNodes.

    Everything it writes is below one folder, and everything it starts has ended when the `with`
    block is left.
    """

    def __init__(self, folder):
        self.folder = Path(folder).absolute()
        self.port = _free_port()
        self.processes = {}

    def __enter__(self):
        try:
            self._make_certificates()
            # The command line's own configuration: where the SuperLink is, and whom to trust.
            home = self._home("cli")
            home.joinpath("config.toml").write_text(
                f'[superlink]\ndefault = "local"\n\n[superlink.local]\n'
                f'address = "{HOST}:{self.port}"\nroot-certificates = "{self.folder / "ca.crt"}"\n'
            )
            self._start(
                "superlink",
                *("flower-superlink", "--host", HOST, "--port", str(self.port)),
                *("--ssl-ca-certfile", "ca.crt"),
                *("--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            )
            self._await_port()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    # -- what an operator does -----------------------------------------------------------------

    def register(self, name):
        """Make a key pair for a node, and tell the SuperLink its public half."""
        self._do("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", name)
        self.flwr("supernode", "register", f"{name}.pub", "--name", name)

    def start_node(self, name, config):
        """Start the SuperNode of a site, with its own data and its own word on what may leave."""
        text = "".join(f"{key} = {_toml(value)}\n" for key, value in config.items())
        self.folder.joinpath(f"{name}.toml").write_text(text)
        self._start(
            name,
            *("flower-supernode", "--superlink", f"{HOST}:{self.port}"),
            *("--root-certificates", "ca.crt", "--auth-supernode-private-key", name),
            *("--host", HOST, "--port", str(_free_port()), "--node-config", f"{name}.toml"),
        )

    def run(self, app, config):
        """Run an app, and return all that it said; whether it went well is for the log to say."""
        text = "".join(f"{key} = {_toml(value)}\n" for key, value in config.items())
        path = self.folder / "run.toml"
        path.write_text(text)
        return self.flwr("run", str(app), "--run-config", str(path), "--stream")

    def flwr(self, *arguments):
        """Do what one would do with the command `flwr`, and return what it said."""
        return self._do("flwr", *arguments)

    def log(self, name):
        """Return what a process has said so far."""
        return self.folder.joinpath(f"{name}.log").read_text(errors="replace")

    def close(self):
        """End every process, the SuperLink last."""
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    # -- how ------------------------------------------------------------------------------------

    def _make_certificates(self):
        """Make an authority, and a certificate of its for the SuperLink."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.joinpath("server.ext").write_text(f"subjectAltName = IP:{HOST}\n")
        new = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        days = ("-days", "30")
        self._do(*new, "-x509", *days, "-subj", "/CN=otmoe", "-keyout", "ca.key", "-out", "ca.crt")
        self._do(*new, "-subj", f"/CN={HOST}", "-keyout", "server.key", "-out", "server.csr")
        self._do(
            *("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
            *("-CAcreateserial", *days, "-extfile", "server.ext", "-out", "server.crt"),
        )

    def _home(self, name):
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name):
        return os.environ | {
            "FLWR_HOME": str(self._home(name)),
            "FLWR_TELEMETRY_ENABLED": "0",  # nothing goes to Flower Labs
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            # Flower starts commands of its own by name: those beside this interpreter.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def _do(self, *command):
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment("cli"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
        return done.stdout

    def _start(self, name, *command):
        with self.folder.joinpath(f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [shutil.which(command[0], path=self._environment(name)["PATH"]), *command[1:]],
                cwd=self.folder,
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _await_port(self, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                if self.processes["superlink"].poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no SuperLink:\n{self.log('superlink')}") from None
                time.sleep(0.2)


def _free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f"'{value}'"
