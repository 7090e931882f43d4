"""A real Slurm of some nodes on one machine with pretend GPUs, private to a folder: nothing outside it is touched.

Everything (munge, MariaDB, slurmdbd, slurmctld, slurmd) runs in the foreground as a child of this process, with its
sockets, ports, keys and logs in the folder, and is ended by its process id, also if this process dies.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "mariadbd", "mariadb", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacct")
PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")
INSTALL_SECONDS = 600


class CannotStartError(RuntimeError):
    """Slurm cannot run here; the text says why."""


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=_path())]


def install() -> None:
    """Install Debian's packages if something is missing and we may."""
    if not missing_programs():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        msg = f"missing {', '.join(missing_programs())}, and they cannot be installed (not root on Debian)"
        raise CannotStartError(msg)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(
            ["apt-get", *command], env=env, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            msg = f"apt-get {command[0]} failed: {done.stderr.strip()[-300:]}"
            raise CannotStartError(msg)
    if missing_programs():
        msg = f"still missing after the installation: {', '.join(missing_programs())}"
        raise CannotStartError(msg)


def free_ports(num: int) -> list[int]:
    sockets = [socket.socket() for _ in range(num)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _end_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Sandbox:
    """Use as a context; ``run("sbatch", …)`` runs a command against it. ``gpus``: node -> type -> number."""

    def __init__(self, folder: Path, *, gpus: dict[str, dict[str, int]]) -> None:
        self.folder = folder
        self.gpus = gpus
        self.host = socket.gethostname().split(".")[0]
        self.daemons: list[tuple[str, subprocess.Popen]] = []
        self.env = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
        self.db_port, self.dbd_port, self.ctl_port, *self.node_ports = free_ports(3 + len(gpus))

    def __enter__(self) -> Sandbox:
        install()
        if os.geteuid() != 0:
            msg = "slurmd runs jobs as their users: it needs root"
            raise CannotStartError(msg)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *command: str, **env: str) -> str:
        done = subprocess.run(
            command, env={**self.env, **env}, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder
        )
        if done.returncode:
            msg = f"{' '.join(command)}: {done.stderr.strip()}"
            raise RuntimeError(msg)
        return done.stdout

    def stop(self) -> None:
        """End what was started, last first, by process id."""
        for _, daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()

    def wait_for(self, what: str, ready: Callable[[], bool], *, seconds: float = 30) -> None:
        until, said = time.monotonic() + seconds, ""
        while time.monotonic() < until:
            ended = [name for name, daemon in self.daemons if daemon.poll() is not None]
            if ended:
                msg = f"{ended[0]} ended at once: {self._log(ended[0])}"
                raise CannotStartError(msg)
            try:
                if ready():
                    return
            except (RuntimeError, OSError) as error:
                said = str(error)
            time.sleep(0.2)
        msg = f"{what} is not there after {seconds:.0f} s: {said} {self._log(self.daemons[-1][0])}"
        raise CannotStartError(msg)

    def _log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-600:] if path.exists() else "no log"

    def _daemon(self, name: str, *arguments: str, log: str | None = None) -> None:
        label = log or name
        with (self.folder / f"{label}.log").open("wb") as file:
            daemon = subprocess.Popen(
                [name, *arguments],
                env=self.env,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                preexec_fn=_end_with_parent,
            )
        self.daemons.append((label, daemon))
        (self.folder / f"{label}.pid").write_text(f"{daemon.pid}\n")

    def _start(self) -> None:
        self.folder.chmod(0o755)
        self._start_munge()
        self._start_database()
        self._configure()
        self._daemon("slurmdbd", "-D")
        self.wait_for("slurmdbd", lambda: bool(self.run("sacctmgr", "-n", "show", "cluster") or True))
        self.run("sacctmgr", "-i", "add", "cluster", "hindcast")
        self._daemon("slurmctld", "-D", "-i")
        for node in self.gpus:
            self._daemon("slurmd", "-D", "-N", node, log=f"slurmd-{node}")
        self.wait_for("idle nodes", lambda: set(self.run("sinfo", "-h", "-o", "%T").split()) == {"idle"})

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *options)
        self.wait_for("munge", (self.folder / "munge.socket").exists)

    def _start_database(self) -> None:
        data, sock = self.folder / "mysql", self.folder / "mysql.socket"
        self.run(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--user=root",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        self._daemon(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--socket={sock}",
            f"--port={self.db_port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
        )

        def ask(text: str) -> bool:
            self.run("mariadb", "--no-defaults", f"--socket={sock}", "-e", text)
            return True

        self.wait_for("MariaDB", lambda: ask("select 1"))
        ask("create database slurm; create user s@localhost identified by 's'; grant all on slurm.* to s@localhost")
        ask("create user s@127.0.0.1 identified by 's'; grant all on slurm.* to s@127.0.0.1")

    def _configure(self) -> None:
        auth = f"socket={self.folder / 'munge.socket'}"
        types = sorted({f"gpu:{name}" for of_node in self.gpus.values() for name in of_node})
        nodes = ",".join(self.gpus)
        (self.folder / "state").mkdir()
        database = {
            "AuthType": "auth/munge",
            "AuthInfo": auth,
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": self.dbd_port,
            "SlurmUser": "root",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": self.db_port,
            "StorageUser": "s",
            "StoragePass": "s",
            "StorageLoc": "slurm",
            "PidFile": self.folder / "slurmdbd.own.pid",
        }
        controller = {
            "ClusterName": "hindcast",
            "SlurmctldHost": f"{self.host}(127.0.0.1)",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            # A requeued job waits until its credential has run out: two minutes by default.
            "AuthInfo": f"{auth},cred_expire=5",
            "SlurmctldPort": self.ctl_port,
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool-%n",
            "SlurmctldPidFile": self.folder / "slurmctld.own.pid",
            "SlurmdPidFile": self.folder / "slurmd-%n.own.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU_Memory",
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "sched_interval=1,bf_interval=1,sched_min_interval=0",
            "KillWait": 1,
            "MinJobAge": 300,
            "ReturnToService": 2,
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": 1,
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": self.dbd_port,
            # With munge the "password" is the daemon's socket.
            "AccountingStoragePass": self.folder / "munge.socket",
            "AccountingStorageTRES": ",".join(f"gres/{name}" for name in ("gpu", *types)),
            "GresTypes": "gpu",
        }
        self._write("slurmdbd.conf", database).chmod(0o600)
        with self._write("slurm.conf", controller).open("a") as file:
            for (node, of_node), port in zip(self.gpus.items(), self.node_ports, strict=True):
                gres = ",".join(f"gpu:{name}:{num}" for name, num in of_node.items())
                place = f"NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port}"
                file.write(f"NodeName={node} {place} CPUs=32 RealMemory=4096 Gres={gres} State=UNKNOWN\n")
            common = f"Nodes={nodes} DefMemPerCPU=16 State=UP"
            file.write(f"PartitionName=gpu {common} Default=YES MaxTime=1-00:00:00\n")
            file.write(f"PartitionName=long {common} MaxTime=UNLIMITED\n")
            # Takes jobs and starts none.
            file.write(f"PartitionName=closed {common.replace('UP', 'DOWN')} MaxTime=UNLIMITED\n")
        self._pretend_gpus()
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _pretend_gpus(self) -> None:
        """Slurm counts a GPU only if it is a device file: these are /dev/null by other names."""
        lines, null = [], os.makedev(1, 3)
        for node, of_node in self.gpus.items():
            for name, num in of_node.items():
                for number in range(num):
                    device = self.folder / f"{node}_{name}_{number}"
                    os.mknod(device, 0o666 | stat.S_IFCHR, null)
                    lines.append(f"NodeName={node} Name=gpu Type={name} File={device}\n")
        (self.folder / "gres.conf").write_text("".join(lines))

    def _write(self, name: str, values: dict[str, object]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path
