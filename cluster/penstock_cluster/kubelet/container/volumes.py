"""A pod's volumes as folders of this machine.

``emptyDir`` is a folder that dies with the pod. ConfigMaps, Secrets, the downward API and projected
volumes are written the way the kubelet writes them: into a dated folder to which ``..data`` points,
so that an update is seen whole or not at all. ``hostPath`` is the path itself. A
``persistentVolumeClaim`` is a folder per claim that outlives pods. Other kinds are refused.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock_cluster.kubelet.container.environment import decoded, expand
from penstock_cluster.kubelet.container.fields import field_value, resource_value

Json = Mapping[str, Any]
Files = dict[str, tuple[bytes, int]]
"""Contents and mode by relative path."""

_DEFAULT_MODE = 0o644


class VolumeError(Exception):
    """A volume cannot be set up now; the message is that of a FailedMount event."""


class VolumeSources(Protocol):
    """Where the contents of volumes come from, all in the pod's namespace."""

    async def config_map(self, name: str) -> Json | None: ...
    async def secret(self, name: str) -> Json | None: ...
    async def claim(self, name: str) -> Json | None: ...
    async def token(self, pod: Json, service_account: str, audience: str, seconds: int) -> str: ...


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The folders of a pod's volumes by name."""

    folders: Mapping[str, Path]

    def mounts(self, container: Json, variables: Mapping[str, str]) -> dict[str, Path]:
        """Folder or file by ``mountPath``; sub-paths of writable volumes are made."""
        found = {}
        for mount in container.get("volumeMounts") or ():
            folder = self.folders.get(mount["name"])
            if folder is None:
                continue
            sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
            if sub_path:
                folder = folder / sub_path
                if not folder.exists():
                    folder.mkdir(parents=True)
            found[mount["mountPath"]] = folder
        return found


class VolumeManager:
    """Sets up, refreshes and removes the volumes of one pod."""

    def __init__(
        self,
        pod: Json,
        folder: Path,
        claims_folder: Path,
        sources: VolumeSources,
        allocatable: Mapping[str, int],
    ) -> None:
        self._pod = pod
        self._folder = folder / "volumes"
        self._claims_folder = claims_folder
        self._sources = sources
        self._allocatable = allocatable

    async def set_up(self) -> PodVolumes:
        """Make every volume; raises VolumeError naming the first that cannot be made."""
        folders = {}
        for volume in self._pod["spec"].get("volumes") or ():
            try:
                folders[volume["name"]] = await self._one(volume)
            except VolumeError as error:
                raise VolumeError(
                    f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
                ) from None
        return PodVolumes(folders)

    async def refresh(self) -> None:
        """Write again what may have changed: ConfigMaps, Secrets, tokens, labels."""
        for volume in self._pod["spec"].get("volumes") or ():
            if _is_written(volume):
                await self._one(volume)

    @property
    def has_written_volumes(self) -> bool:
        return any(_is_written(volume) for volume in self._pod["spec"].get("volumes") or ())

    def update_pod(self, pod: Json) -> None:
        """Take over the pod's newest labels and annotations."""
        self._pod = pod

    async def _one(self, volume: Json) -> Path:
        name: str = volume["name"]
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if claim := volume.get("persistentVolumeClaim"):
            return await self._claim(claim["claimName"])
        folder = self._folder / name
        if "emptyDir" in volume or set(volume) == {"name"}:
            return _made(folder)
        files = await self._files(volume)
        if files is None:
            kind = next(iter(set(volume) - {"name"}))
            raise VolumeError(f"volume plugin {kind!r} is not available on the embedded cluster")
        write_files(folder, files)
        return folder

    async def _claim(self, name: str) -> Path:
        if await self._sources.claim(name) is None:
            raise VolumeError(f'persistentvolumeclaim "{name}" not found')
        return _made(self._claims_folder / self._pod["metadata"]["namespace"] / name)

    async def _files(self, volume: Json) -> Files | None:
        if source := volume.get("configMap"):
            return await self._object_files("configmap", source, source["name"])
        if source := volume.get("secret"):
            return await self._object_files("secret", source, source["secretName"])
        if source := volume.get("downwardAPI"):
            return self._downward_files(source)
        if source := volume.get("projected"):
            return await self._projected_files(source)
        return None

    async def _object_files(
        self, kind: str, source: Json, name: str, mode: int | None = None
    ) -> Files:
        look_up = self._sources.config_map if kind == "configmap" else self._sources.secret
        found = await look_up(name)
        if found is None:
            if source.get("optional"):
                return {}
            raise VolumeError(f'{kind} "{name}" not found')
        mode = mode or source.get("defaultMode") or _DEFAULT_MODE
        values = decoded(found)
        if not source.get("items"):
            return {key: (value, mode) for key, value in values.items()}
        files: Files = {}
        for item in source["items"]:
            if item["key"] not in values:
                if source.get("optional"):
                    continue
                raise VolumeError(f"references non-existent {kind} key: {item['key']}")
            files[item["path"]] = (values[item["key"]], item.get("mode") or mode)
        return files

    def _downward_files(self, source: Json, mode: int | None = None) -> Files:
        mode = mode or source.get("defaultMode") or _DEFAULT_MODE
        files: Files = {}
        for item in source.get("items") or ():
            if reference := item.get("fieldRef"):
                text = field_value(self._pod, reference["fieldPath"])
            else:
                container = self._pod["spec"]["containers"][0]
                text = resource_value(
                    self._pod, container, item["resourceFieldRef"], self._allocatable
                )
            files[item["path"]] = (text.encode(), item.get("mode") or mode)
        return files

    async def _projected_files(self, volume: Json) -> Files:
        mode = volume.get("defaultMode") or _DEFAULT_MODE
        files: Files = {}
        for source in volume.get("sources") or ():
            if part := source.get("configMap"):
                files |= await self._object_files("configmap", part, part["name"], mode)
            elif part := source.get("secret"):
                files |= await self._object_files("secret", part, part["name"], mode)
            elif part := source.get("downwardAPI"):
                files |= self._downward_files(part, mode)
            elif part := source.get("serviceAccountToken"):
                account = self._pod["spec"].get("serviceAccountName") or "default"
                token = await self._sources.token(
                    self._pod,
                    account,
                    part.get("audience") or "",
                    part.get("expirationSeconds") or 3600,
                )
                files[part["path"]] = (token.encode(), 0o600)
            else:
                kind = next(iter(source), "nothing")
                raise VolumeError(f"projected source {kind!r} is not available here")
        return files


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_written(volume: Json) -> bool:
    return any(kind in volume for kind in ("configMap", "secret", "downwardAPI", "projected"))


def _host_path(source: Json) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif kind == "Directory" and not path.is_dir():
        raise VolumeError(f"hostPath type check failed: {path} is not a directory")
    elif kind == "File" and not path.is_file():
        raise VolumeError(f"hostPath type check failed: {path} is not a file")
    return path


def write_files(folder: Path, files: Files) -> None:
    """Make the folder hold exactly these files, for every reader at once."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    if data.is_symlink() and _holds(data, files):
        return
    generation = next(
        candidate
        for number in itertools.count(1)
        if not (candidate := folder / f"..{number:06d}").exists()
    )
    for path, (content, mode) in files.items():
        target = generation / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    generation.mkdir(exist_ok=True)
    old = data.resolve() if data.is_symlink() else None
    pointer = folder / "..data_new"
    pointer.symlink_to(generation.name)
    pointer.replace(data)
    wanted = {Path(path).parts[0] for path in files}
    for name in wanted:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path("..data") / name)
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old)


def _holds(data: Path, files: Files) -> bool:
    present = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    return present == set(files) and all(
        (data / path).read_bytes() == content for path, (content, _) in files.items()
    )
