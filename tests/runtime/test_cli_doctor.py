"""`dspark doctor` on machines of every kind, told apart by a driver that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dspark.cli import main
from dspark.kernels import toolkit
from dspark.kernels.nvrtc import Nvrtc
from dspark.runtime import devices, examine
from tests.support.fake_driver import H200, build, install, uninstall

OK, USAGE, REFUSED = 0, 2, 3
Say = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("DSPARK_KERNEL_CACHE", str(repository / "build" / "cubins"))


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is there, so that the machine alone decides."""
    real = examine.find_spec
    monkeypatch.setattr(examine, "find_spec", lambda name: real("math" if name == "cupy" else name))
    monkeypatch.setattr(examine, "package_troubles", lambda _: ())


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], repository: Path) -> Say:
    schema = json.loads((repository / "schemas/doctor.schema.json").read_text(encoding="utf-8"))

    def say(*words: str) -> tuple[int, dict[str, Any]]:
        """The exit code of `doctor --json`, and what it printed, which is by its schema."""
        code = main(["doctor", *words, "--json"])
        found = json.loads(capsys.readouterr().out)
        Draft202012Validator(schema).validate(found)
        return code, found

    return say


def findings(found: dict[str, Any], device: str = "cuda") -> list[tuple[str, str, str]]:
    listed = found["devices"][device]["findings"]
    assert found["devices"][device]["usable"] is not bool(listed)
    return [(each["rule_id"], each["name"], each["message"]) for each in listed]


@pytest.mark.usefixtures("complete")
def test_a_machine_that_can(say: Say, monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, H200)

    code, found = say("--device", "cuda", "--memory", "149000000000")

    assert (OK, []) == (code, findings(found))
    assert "13.0" == found["driver"]
    assert [("NVIDIA H200", "sm_90", 149_000_000_000)] == [
        (gpu["name"], gpu["architecture"], gpu["free_memory"]) for gpu in found["gpus"]
    ]
    assert ["sm_90"] == found["kernels"]["compiled"]


@pytest.mark.usefixtures("complete")
def test_no_gpu(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch)

    code, found = say("--device", "cuda")

    assert REFUSED == code
    (only,) = findings(found)
    assert ("B003", "device-unavailable") == only[:2]
    assert "the device `cuda` cannot be used here: there is no NVIDIA driver" in only[2]
    assert ([], None) == (found["gpus"], found["driver"])
    # What the processor can do has nothing to do with it.
    assert OK == say()[0] == say("--device", "cpu")[0]


@pytest.mark.usefixtures("complete")
def test_an_old_driver(say: Say, monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, H200, driver=12090)

    code, found = say("--device", "cuda")

    expected = (
        "the NVIDIA driver supports CUDA 12.9, and kernels compiled by CUDA"
        f" {found['compiler']['version']} need a newer one"
    )
    assert [("B004", "driver-too-old", expected)] == findings(found)
    assert REFUSED == code


@pytest.mark.usefixtures("complete")
def test_a_driver_of_the_same_major_version_will_do(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, H200, driver=13000)
    monkeypatch.setattr(Nvrtc, "version", (13, 9))

    assert [] == findings(say("--device", "cuda")[1])


@pytest.mark.usefixtures("complete")
def test_a_newer_driver_runs_what_an_older_compiler_made(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, H200, driver=14000)

    assert [] == findings(say()[1])


@pytest.mark.parametrize(
    ("capability", "says"),
    [
        ("75", "the GPU `A` has compute capability 7.5, and the kernels need 8.0 or later"),
        ("990", "the GPU `A` has compute capability 99.0, which the compiler of CUDA"),
    ],
)
@pytest.mark.usefixtures("complete")
def test_a_gpu_that_no_kernel_runs_on(
    capability: str, says: str, say: Say, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, f"{capability}:A:9:8:7")

    code, found = say("--device", "cuda")

    (only,) = findings(found)
    assert ("B005", "unsupported-gpu") == only[:2]
    assert says in only[2]
    assert (REFUSED, []) == (code, found["kernels"]["compiled"])
    # Beside a GPU that they do run on it stops nobody.
    install(monkeypatch, library, f"{capability}:A:9:8:7", H200)
    assert [] == findings(say("--device", "cuda")[1])


@pytest.mark.usefixtures("complete")
def test_too_little_memory(say: Say, monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    install(monkeypatch, library, "80:small:900:700:7", "90:large:2000:1000:7")

    code, found = say("--device", "cuda", "--memory", "1001")

    expected = "the GPU `large` has 1000 bytes free, and 1001 are needed"
    assert [("B007", "gpu-memory-short", expected)] == findings(found)
    assert REFUSED == code
    assert [] == findings(say("--device", "cuda", "--memory", "1000")[1])


@pytest.mark.usefixtures("complete")
def test_no_compiler(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path, tmp_path: Path
) -> None:
    install(monkeypatch, library, H200)
    monkeypatch.setattr(toolkit, "_roots", lambda: iter([tmp_path]))

    code, found = say("--device", "cuda")

    (only,) = findings(found)
    assert ("B006", "kernels-not-compiled") == only[:2]
    assert "the kernels cannot be compiled here: NVRTC (`libnvrtc.so`) is neither" in only[2]
    assert (REFUSED, None) == (code, found["compiler"])


@pytest.mark.usefixtures("complete")
def test_kernels_that_do_not_compile(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path, tmp_path: Path
) -> None:
    install(monkeypatch, library, H200)
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("DSPARK_KERNEL_CACHE", str(blocked / "cache"))

    code, found = say("--device", "cuda")

    ((rule_id, _, message),) = findings(found)
    assert ("B006", REFUSED) == (rule_id, code)
    assert "compiled kernels cannot be kept in" in message
    assert [] == found["kernels"]["compiled"]


def test_what_the_package_lacks_is_said_too(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, H200)
    lacks = {"cupy", "tokenizers"}
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name in lacks else object())

    tokenizers, cupy = findings(say("--device", "cuda")[1])

    assert {"B003"} == {tokenizers[0], cupy[0]}
    assert "the package `tokenizers` is not installed" in tokenizers[2]
    assert "the package `cupy` is not installed" in cupy[2]


def test_what_no_installation_cures_comes_first_as_in_a_refusal(
    say: Say, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    install(monkeypatch, library, "75:A:9:8:7", driver=12090)
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "cupy" else object())

    found = findings(say("--device", "cuda")[1])

    names = ["unsupported-gpu", "device-unavailable", "driver-too-old"]
    assert names == [name for _, name, _ in found]
    assert names == [trouble.name for trouble in devices.troubles("cuda", "bfloat16")]


def test_nothing_can_decode(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch)
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "torch" else object())

    code, found = say()

    assert REFUSED == code
    assert "the package `torch` is not installed" in findings(found, "cpu")[0][2]


@pytest.mark.usefixtures("complete")
def test_in_words(
    monkeypatch: pytest.MonkeyPatch, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, library, H200, driver=12090)

    assert OK == main(["doctor"])

    lines = capsys.readouterr().out.splitlines()
    assert "driver      CUDA 12.9" in lines
    assert "gpu 0       NVIDIA H200, sm_90, 138.77 GiB of 139.70 GiB free" in lines
    assert "cpu: can decode here" in lines
    place = lines.index("cuda: cannot decode here")
    assert lines[place + 1].endswith("  [B004 driver-too-old]")
    assert lines[place + 2].startswith("    help: update the driver, or install the build")


def test_memory_is_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--memory", "much"])

    assert USAGE == caught.value.code
    assert "argument --memory: `much`: a size is a number of bytes" in capsys.readouterr().err
