"""Shut a process off before it repeats a user's script: what it writes stays in memory, and nothing is connected to.

Namespaces of its own (user, mount, network, process): an overlay in memory lies over every file system, so the script may
write where it likes and nothing of it remains. Where they are refused, `guard.py` is the next best way.
Standard library only: this runs in a fresh interpreter, before torch and before any second thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

# linux/sched.h and linux/mount.h
_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_NO_SUID, _READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 0x2, 0x1, 0x20, 0x1000, 0x4000, 0x40000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
# File systems that hold no user's files: they are taken over as they are (proc is mounted anew).
_KERNEL_SYSTEMS = frozenset(
    [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "mqueue",
        "securityfs",
        "debugfs",
        "tracefs",
        "bpf",
        "pstore",
        "configfs",
        "fusectl",
        "hugetlbfs",
        "binfmt_misc",
        "autofs",
        "rpc_pipefs",
        "nsfs",
        "efivarfs",
    ]
)


class IsolationFailed(Exception):
    """Say which way was tried and what refused it."""


def enter_namespaces(keep: Path, memory_bytes: int = 2 << 30) -> None:
    """Move this process into namespaces of its own, with an overlay in memory over everything that is writable.

    Returns in a child process, which is the first of its process namespace; the calling process waits for it and ends as
    it ends. Only `keep` remains writable for real.

    Args:
        keep: an existing folder whose contents survive: the record of the repeated run.
        memory_bytes: bound on what may be written elsewhere.

    Raises:
        IsolationFailed: nothing was changed that the caller could see; it may try another way in a fresh process.
    """
    working = os.getcwd()
    user, group = os.getuid(), os.getgid()
    _leave(user, group)
    try:
        root = _overlaid_root(keep.resolve(), memory_bytes)
    except OSError as error:
        raise IsolationFailed(f"overlay: {error}") from error
    _raise_loopback()
    _become_first_process(root)
    os.chroot(root)
    os.chdir(working)


def can_enter_namespaces() -> str:
    """Try in a child process whether namespaces are allowed; return why not, or an empty string.

    Example:
        >>> isinstance(can_enter_namespaces(), str)
        True
    """
    import subprocess
    import tempfile

    if sys.platform != "linux":
        return "namespaces exist on Linux only"
    code = "import sys, pathlib; from lossdoctor.launch.isolation import enter_namespaces; enter_namespaces(pathlib.Path(sys.argv[1]))"
    with tempfile.TemporaryDirectory(prefix="lossdoctor-") as folder:
        source = str(Path(__file__).parents[2])
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except subprocess.TimeoutExpired:
            return "trying it took longer than 20 s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unknown reason"])[-1]


def end_with_parent() -> None:
    """Have this process end when the one that started it does, also by `kill -9` (Linux only)."""
    if sys.platform == "linux":
        _call("prctl", _DIE_WITH_PARENT, 9, 0, 0, 0)


def _call(name: str, *arguments: int | bytes | None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    try:
        _call("mount", source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode())  # type: ignore[arg-type]
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({target})") from error


def _leave(user: int, group: int) -> None:
    """Leave the namespaces of the machine. Root needs no user namespace, and within one would lose its rights over others' files."""
    spaces = _NEW_MOUNTS | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
    if user == 0:
        try:
            return _call("unshare", spaces)
        except OSError:
            pass  # a container whose root lacks the right; a user namespace may still be allowed
    try:
        _call("unshare", spaces | _NEW_USERS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        raise IsolationFailed(str(error)) from error


@dataclass(frozen=True)
class _Mounted:
    """One mounted file system: its kind, and whether it is read-only."""

    kind: str
    read_only: bool


def _mounts() -> dict[str, _Mounted]:
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4].encode().decode("unicode_escape")
        found[point] = _Mounted(rest.split()[0], "ro" in fields.split()[5].split(","))
    return found


class _Root:
    """Build, in a memory file system, the root that the script will see."""

    def __init__(self, memory_bytes: int) -> None:
        self.mounts = _mounts()
        self.layers = 0
        _mount("none", "/", None, _RECURSIVE | _PRIVATE)
        # The mount hides an existing folder, in this namespace only, until the new root takes over.
        self.scratch = next(folder for folder in ("/mnt", "/media", "/tmp") if os.path.isdir(folder))
        self.hidden = os.open(self.scratch, os.O_PATH | os.O_DIRECTORY)
        _mount("scratch", self.scratch, "tmpfs", _NO_SUID, f"size={memory_bytes},mode=0755")
        self.path = f"{self.scratch}/root"
        os.mkdir(self.path, 0o755)

    def add(self, path: str, source: str) -> None:
        """Bring the folder `path`, reachable as `source`, into the new root."""
        target = self.path + (path if path != "/" else "")
        os.makedirs(target, exist_ok=True)
        own = self.mounts.get(path)
        beneath = any(point.startswith(path.rstrip("/") + "/") for point in self.mounts)
        if own and path != "/" and (own.kind in _KERNEL_SYSTEMS or own.read_only):
            _mount(source, target, None, _BIND | _RECURSIVE)
        elif not beneath:
            self._overlay(source, target)
        else:  # a folder with mounts beneath cannot be the lower layer of an overlay in a user namespace: entry by entry
            os.chmod(target, os.stat(source).st_mode & 0o7777)
            self._entries(path, source)

    def _entries(self, path: str, source: str) -> None:
        for entry in os.scandir(source):
            inner = f"{path.rstrip('/')}/{entry.name}"
            target = self.path + inner
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            elif entry.is_dir():
                hidden = inner == self.scratch
                self.add(inner, f"/proc/self/fd/{self.hidden}" if hidden else entry.path)
            elif entry.is_file() and os.access(entry.path, os.R_OK):
                Path(target).touch()
                _mount(entry.path, target, None, _BIND)
                _mount(entry.path, target, None, _BIND | _REMOUNT | _READ_ONLY)

    def _overlay(self, source: str, target: str) -> None:
        self.layers += 1
        upper, work = f"{self.scratch}/upper{self.layers}", f"{self.scratch}/work{self.layers}"
        os.mkdir(upper, os.stat(source).st_mode & 0o7777)
        os.mkdir(work)
        _mount("overlay", target, "overlay", _NO_SUID, f"lowerdir={source},upperdir={upper},workdir={work}")


def _overlaid_root(keep: Path, memory_bytes: int) -> str:
    kept = os.open(keep, os.O_PATH | os.O_DIRECTORY)
    root = _Root(memory_bytes)
    root.add("/", "/")
    if os.path.isdir(f"{root.path}/dev/shm"):
        _mount("shm", f"{root.path}/dev/shm", "tmpfs", _NO_SUID, f"size={memory_bytes}")
    os.makedirs(root.path + str(keep), exist_ok=True)
    _mount(f"/proc/self/fd/{kept}", root.path + str(keep), None, _BIND)
    return root.path


def _become_first_process(root: str) -> None:
    """Fork: the child is the first process of the namespace, so its end takes all of its children along."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    end_with_parent()
    _mount("proc", f"{root}/proc", "proc", _NO_SUID)


def _raise_loopback() -> None:
    """Let the script talk to itself: process groups on one machine meet on the loopback device of the new namespace."""
    import fcntl
    import socket
    import struct

    up = 0x1  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, 0x8914, struct.pack("16sH14x", b"lo", up))  # SIOCSIFFLAGS
