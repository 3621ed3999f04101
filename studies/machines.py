"""On what something was measured, in words, and what else the machine was doing."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

from threadpoolctl import threadpool_info

from studies.rows import Row

_INTEL = {85: "Skylake or Cascade Lake", 106: "Ice Lake", 143: "Sapphire Rapids"}


@cache
def environment() -> Row:
    """Return the columns that say on what a row was measured."""
    blas = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    return {
        "machine": _machine(),
        "cpu": _cpu().get("model name", platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "blas": " + ".join(
            sorted({f"{b['internal_api']} {b['version']} ({b.get('architecture')})" for b in blas})
        ),
        **{name: _version(name) for name in ("numpy", "scipy", "scikit-learn", "numba", "otmoe")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu() -> dict[str, str]:
    """Return the first processor's entry in /proc/cpuinfo; empty where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    lines = path.read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (li.partition(":") for li in lines)}


def _machine() -> str:
    """Return the machine in words, such as "2-core Intel Xeon (Ice Lake) virtual machine"."""
    cpu = _cpu()
    name = cpu.get("model name", platform.processor() or platform.machine())
    name = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|\d+-Core|@.*", " ", name)
    name = " ".join(name.split())
    if cpu.get("vendor_id") == "GenuineIntel" and int(cpu.get("model", 0)) in _INTEL:
        name += f" ({_INTEL[int(cpu['model'])]})"
    kind = "virtual machine" if "hypervisor" in cpu.get("flags", "").split() else "machine"
    return f"{os.cpu_count()}-core {name} {kind}"


def machines(rows: Sequence[Row]) -> str:
    """Return every machine and Python that rows of a CSV were measured on."""
    return "; ".join(dict.fromkeys(f"{r['machine']}, Python {r['python']}" for r in rows))


class OtherWork:
    """Cores that other processes kept busy since this was made; NaN where /proc is missing.

    The kernel counts in hundredths of a second: over less than a tenth nothing can be said.
    """

    def __init__(self) -> None:
        self._begin = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        path = Path("/proc/stat")
        if not path.exists():
            return perf_counter(), float("nan")
        ticks = [float(x) for x in path.read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(ticks[:3]) / os.sysconf("SC_CLK_TCK")  # user, nice, system
        return perf_counter(), busy - sum(os.times()[:4])  # less this process and its children

    def cores(self) -> float:
        (start, before), (end, after) = self._begin, self._now()
        if end - start < 0.1:
            return float("nan")
        return max(0.0, (after - before) / (end - start))
