#!/usr/bin/env python3
"""Writes a container image as an OCI archive, without any container engine.

usage: image.py PROGRAM FILE NAME:TAG

The image holds PROGRAM as /tidegate and the shared libraries that it loads on this
machine, nothing else: no shell, no package manager, no user but the number 65532. The
same inputs give the same bytes. Prints the digest by which a registry will know it.

The archive follows the OCI image layout; a manifest.json beside it lets `docker load`
read it too.
"""

import gzip
import hashlib
import io
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile

USER = "65532:65532"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image."


def main(program, file, name):
    program = pathlib.Path(program)
    layer = tar(root_files(program))
    packed = gzip.compress(layer, compresslevel=6, mtime=0)
    config = encode(config_of(layer, version_of(program)))
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI + "manifest.v1+json",
            "config": descriptor(OCI + "config.v1+json", config),
            "layers": [descriptor(OCI + "layer.v1.tar+gzip", packed)],
        }
    )
    files = {blob(content): (0o644, content) for content in (packed, config, manifest)}
    files["oci-layout"] = (0o644, encode({"imageLayoutVersion": "1.0.0"}))
    files["index.json"] = (0o644, encode(index_of(manifest, name)))
    files["manifest.json"] = (
        0o644,
        encode([{"Config": blob(config), "RepoTags": [name], "Layers": [blob(packed)]}]),
    )
    pathlib.Path(file).write_bytes(tar(files))
    print(digest(manifest))


def root_files(program):
    """What the image holds, by path: mode and content."""
    files = {library.lstrip("/"): (0o755, read(library)) for library in libraries(program)}
    files["tidegate"] = (0o755, read(program))
    return files


def libraries(program):
    """Where the loader of this machine finds what the program needs, itself included."""
    told = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if "not found" in told:
        sys.exit(f"image: a library of {program} is missing:\n{told}")
    # `libc.so.6 => /lib/libc.so.6 (0x7f...)` or, for the loader, `/lib64/ld-linux.so.2 (0x7f...)`.
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", told, re.MULTILINE)


def version_of(program):
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return told.stdout.split()[-1]


def config_of(layer, version):
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": USER,
            "Entrypoint": ["/tidegate"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "tidegate",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "./dev image"}],
    }


def index_of(manifest, name):
    return {
        "schemaVersion": 2,
        "mediaType": OCI + "index.v1+json",
        "manifests": [
            {
                **descriptor(OCI + "manifest.v1+json", manifest),
                # The tag for OCI tools, the whole name for containerd.
                "annotations": {
                    "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                    "io.containerd.image.name": name,
                },
            }
        ],
    }


def descriptor(kind, content):
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def blob(content):
    return "blobs/" + digest(content).replace(":", "/")


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read(path):
    return pathlib.Path(path).read_bytes()


def tar(files):
    """A tar archive that depends on nothing but paths, modes and contents."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in sorted({parent for path in files for parent in parents(path)}):
            archive.addfile(entry(folder, 0o755, tarfile.DIRTYPE))
        for path, (mode, content) in sorted(files.items()):
            file = entry(path, mode, tarfile.REGTYPE)
            file.size = len(content)
            archive.addfile(file, io.BytesIO(content))
    return out.getvalue()


def entry(path, mode, kind):
    made = tarfile.TarInfo(path)
    made.mode, made.type = mode, kind
    return made


def parents(path):
    return [str(parent) for parent in pathlib.PurePosixPath(path).parents if str(parent) != "."]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
