"""The Dockerfiles: lint, what a pod may rely on, and what keeps an image's vLLM as it was."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.gpu_overlay import link, problems

ROOT = Path(__file__).parents[2]
DOCKERFILES = ("Dockerfile", "Dockerfile.gpu")


def instructions(name: str) -> list[str]:
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    whole = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [line for line in whole.splitlines() if line.strip()]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_lints_clean(name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "deploy" / name], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_image_runs_as_a_numbered_user_and_leaves_commands_to_dagster(name: str) -> None:
    final = instructions(name)
    final = final[max(i for i, line in enumerate(final) if line.startswith("FROM")) :]
    assert [line for line in final if line.startswith("USER")] == ["USER 2000:2000"]
    assert not [line for line in final if line.startswith("ENTRYPOINT") and line != "ENTRYPOINT []"]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_image_takes_the_locked_versions(name: str) -> None:
    installs = [line for line in instructions(name) if "uv pip install" in line]
    assert all("--constraint requirements.lock" in line or "--no-deps ." in line for line in installs)


def test_only_what_images_need_goes_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {
        word
        for name in DOCKERFILES
        for line in instructions(name)
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied


class Image:
    """An image with packages, and an environment over it."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "image"
        self.environment = folder / "ours"
        self.site = Path(self.environment, "lib", f"python3.{sys.version_info.minor}", "site-packages")
        self.packages.mkdir()
        self.site.mkdir(parents=True)

    def install(self, where: Path, name: str, version: str, *requires: str) -> None:
        Path(where, name).mkdir()
        Path(where, name, "__init__.py").touch()
        metadata = Path(where, f"{name}-{version}.dist-info")
        metadata.mkdir()
        needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
        Path(metadata, "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )

    def look(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The problems, seen from within the environment."""
        with monkeypatch.context() as patched:
            patched.setattr(sys, "path", [str(self.site), str(self.packages), *sys.path])
            return list(problems(self.environment, "vllm==0.32.0"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def test_environment_finds_the_images_packages_after_its_own(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    image.install(image.packages, "vllm", "0.32.0")
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(image.packages))
        patched.delitem(sys.modules, "vllm", raising=False)
        link(image.environment)
    made = (image.site / "image.pth").read_text(encoding="utf-8")
    assert made == f"import site; site.addsitedir({str(image.packages)!r})\n"


def test_image_that_is_right_has_no_problems(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    image.install(image.packages, "vllm", "0.32.0", "attrs_of_ours>=2", 'absent; extra == "audio"')
    image.install(image.site, "attrs_of_ours", "2.1")
    assert image.look(monkeypatch) == []


def test_another_vllm_is_a_problem(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    image.install(image.packages, "vllm", "0.31.0")
    assert image.look(monkeypatch) == ["vllm is 0.31.0, not ==0.32.0"]


def test_version_of_ours_that_vllm_refuses_is_a_problem(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    image.install(image.packages, "vllm", "0.32.0", "attrs_of_ours<2")
    image.install(image.packages, "attrs_of_ours", "1.0")
    image.install(image.site, "attrs_of_ours", "2.1")
    assert image.look(monkeypatch) == ["vLLM wants attrs_of_ours<2, and attrs_of_ours is 2.1"]


def test_torch_of_ours_before_the_images_is_a_problem(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    image.install(image.packages, "vllm", "0.32.0")
    image.install(image.site, "torch", "2.13.0")
    found = image.look(monkeypatch)
    assert found == [f"torch is in {image.environment}: it must be the image's own"]
