"""Which system calls code in the sandbox may not make: a seccomp filter, as the bytes of its program.

It closes what namespaces and resource limits leave open: memory that belongs to no process, namespaces within
the sandbox, and parts of the kernel that computing needs nothing of. Everything else is allowed. The numbers
are those of the kernel's system call tables.
"""

import platform
import struct
from typing import Final

__all__ = ["syscall_filter"]

_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's audit number of each machine, and its column below."""

_REFUSED: Final[dict[str, tuple[int, int]]] = {
    # Memory that no limit on a process counts.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    # Namespaces, and the mounts that could be made in them.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # Other processes' memory.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    # Parts of the kernel known for their holes.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "syslog": (103, 116),
}
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_NEW_USER_NAMESPACE: Final = 0x10000000
_OTHER_ABI: Final = 0x40000000  # x32 calls on x86_64 carry this bit, and would pass by the numbers above

# Instructions, return values and offsets into `struct seccomp_data`, from the kernel's headers.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38


def syscall_filter(machine: str | None = None) -> bytes:
    """The filter's program, in the form `bwrap --seccomp` reads.

    Args:
        machine: Processor architecture; this machine's if left out.

    Raises:
        ValueError: The architecture's numbers are not known here.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise ValueError(
            f"no system call filter for {machine!r} processors; there is one for {', '.join(_ARCHITECTURES)}"
        )
    architecture, column = _ARCHITECTURES[machine]
    program = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        _step(_AT_LEAST, _OTHER_ABI, 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
    ]
    for numbers in _REFUSED.values():
        program += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, _ERROR | _EPERM)]
    program += [
        # Its flags lie in memory that a filter cannot read; libraries fall back to clone.
        _step(_EQUAL, _CLONE3[column], 0, 1),
        _step(_RETURN, _ERROR | _ENOSYS),
        _step(_EQUAL, _CLONE[column], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        _step(_ANY_BIT, _NEW_USER_NAMESPACE, 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
