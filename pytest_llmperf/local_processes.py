"""Processes of this machine: whose they are, and which of them serve a port.

Everything here answers as far as this user may look. What ends meanwhile, is somebody else's or is hidden is left out;
nothing raises for it.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import suppress

import psutil

__all__ = ["descendants", "described", "server_processes"]

#: What starts programs that have nothing to do with each other: shells, terminals, and who keeps services running.
_HOSTS = frozenset(
    [
        *("ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "nu", "pwsh", "sh", "tcsh", "xonsh", "zsh"),
        *("byobu", "screen", "tmux", "zellij"),
        *("cron", "crond", "login", "sshd", "su", "sudo"),
        *("dockerd", "dumb-init", "init", "launchd", "runsv", "runsvdir", "s6-svscan", "s6-supervise", "slurmd"),
        *("slurmstepd", "supervisord", "systemd", "tini"),
    ]
)
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_ANY = ("0.0.0.0", "::", "::ffff:0.0.0.0")


def described(pid: int) -> str | None:
    """A process's name, with its user's where that is somebody else; ``None`` when it is gone or hidden."""
    try:
        process = psutil.Process(pid)
        name = str(process.name())
    except (psutil.Error, OSError):
        return None
    with suppress(psutil.Error, OSError, KeyError):
        user = process.username()
        if user != getpass.getuser():
            return f"{name} of {user}"
    return name


def descendants(pid: int) -> set[int]:
    """A process and all that it has started, at any remove; empty when it is gone."""
    try:
        process = psutil.Process(pid)
        return {pid, *(child.pid for child in process.children(recursive=True))}
    except (psutil.Error, OSError):
        return {pid} if psutil.pid_exists(pid) else set()


def server_processes(port: int) -> set[int]:
    """All processes of the server that listens on a port of the loopback address.

    The one that listens need not be the one that computes: a server may have its workers beside the listener, below a
    common ancestor. So the tree is taken from the topmost ancestor of the listener on: the last before a shell, a
    terminal multiplexer, a service manager or one that this process descends from too.

    Args:
        port: The TCP port.

    Returns:
        Their numbers; empty when nobody listens, or who does is hidden from this user (another user's, or in a
        container with a network of its own).
    """
    found: set[int] = set()
    for pid in _listeners(port):
        found |= descendants(_topmost(pid))
    return found


def _listeners(port: int) -> set[int]:
    """Who is connected by a connection to the loopback address: who listens on it, or else on all addresses."""
    try:
        sockets = [s for s in psutil.net_connections("tcp") if s.status == psutil.CONN_LISTEN and s.laddr.port == port]
    except (psutil.Error, OSError):  # macOS tells root alone
        return set()
    ours = [s for s in sockets if s.laddr.ip.startswith(_LOOPBACK)] or [s for s in sockets if s.laddr.ip in _ANY]
    return {s.pid for s in ours if s.pid is not None}


def _topmost(pid: int) -> int:
    with suppress(psutil.Error, OSError):
        not_its_own = {1, os.getpid(), *(ancestor.pid for ancestor in _ancestors(psutil.Process()))}
        for ancestor in _ancestors(psutil.Process(pid)):
            if ancestor.pid in not_its_own or _is_host(ancestor):
                break
            pid = ancestor.pid
    return pid


def _ancestors(process: psutil.Process) -> Iterator[psutil.Process]:
    """Its parent, that one's parent and so on, as far as they can be seen."""
    with suppress(psutil.Error, OSError):
        while (parent := process.parent()) is not None:
            yield parent
            process = parent


def _is_host(process: psutil.Process) -> bool:
    # "tmux: server", "-bash", "containerd-shim-runc-v2" and so on
    name = process.name().lower().lstrip("-").partition(":")[0]
    return name in _HOSTS or name.startswith(("containerd-shim", "gnome-terminal", "jupyter"))
