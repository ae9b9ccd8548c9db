"""What the launch layer raises on purpose.

DsparkError
├── ToolkitMissing(DsparkError, ImportError)   no NVRTC or no CUDA headers on this machine
├── SourceError(DsparkError, ValueError)       a .cu file says something that is not understood
├── CompileError(DsparkError, RuntimeError)    NVRTC refused a source; carries its log
├── LaunchError(DsparkError, TypeError)        a launch whose arguments are not the kernel's
├── AllocationError(DsparkError, MemoryError)  the device has not that much memory left
└── GraphError(DsparkError, RuntimeError)      a graph that was captured or replayed wrongly
    └── AllocatedUnderGraph(GraphError)        memory asked for while a captured graph is in use
"""

from __future__ import annotations

from dspark import DsparkError


class ToolkitMissing(DsparkError, ImportError):
    """A part of the CUDA toolkit that compiling needs is not on this machine."""


class SourceError(DsparkError, ValueError):
    """A kernel's source is outside the small language that `signatures.py` reads."""


class CompileError(DsparkError, RuntimeError):
    """NVRTC did not compile a source; the message ends with its log."""


class LaunchError(DsparkError, TypeError):
    """A launch that would hand a kernel something else than it takes; nothing was launched."""


class AllocationError(DsparkError, MemoryError):
    """The device has less memory left than was asked for.

    `asked` and `left` are bytes, `device` its name; 0 and empty where nobody knows.
    """

    def __init__(self, message: str, asked: int = 0, left: int = 0, device: str = "") -> None:
        super().__init__(message)
        self.asked, self.left, self.device = asked, left, device


class GraphError(DsparkError, RuntimeError):
    """A graph was captured or replayed in a way that a device would not survive."""


class AllocatedUnderGraph(GraphError):
    """Memory was asked for between a graph's capture and its release.

    A graph holds addresses. What is allocated after its capture may lie where a buffer of the
    graph's was, so everything is allocated before the first capture.
    """
