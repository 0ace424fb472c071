#!/usr/bin/env python3
"""Download of plotly's cartesian bundle, the charting library in reports, with a record of its version.

    fetch_plotly.py VERSION              from the npm registry
    fetch_plotly.py VERSION ARCHIVE      from the package's archive, as from `npm pack` or the registry
    fetch_plotly.py                      check that the files are those recorded in plotly.json

The archive is compared with the registry's checksum before anything is written. Only the standard library is
needed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import Path

PACKAGE = "plotly.js-cartesian-dist-min"
REGISTRY = "https://registry.npmjs.org"
ASSETS = Path(__file__).resolve().parents[1] / "src" / "sinkprop" / "report" / "assets"
BUNDLE, LICENSE, RECORD = "plotly-cartesian.min.js", "plotly-LICENSE", "plotly.json"


def download(version: str) -> bytes:
    """The archive of a version, checked against the registry's record of it."""
    with urllib.request.urlopen(f"{REGISTRY}/{PACKAGE}/{version}", timeout=60) as answer:
        dist = json.load(answer)["dist"]
    with urllib.request.urlopen(dist["tarball"], timeout=60) as answer:
        archive: bytes = answer.read()
    kind, _, expected = dist["integrity"].partition("-")
    found = base64.b64encode(hashlib.new(kind, archive).digest()).decode("ascii")
    if found != expected:
        raise SystemExit(
            f"{PACKAGE} {version}: the registry says {kind} {expected}, the archive has {found}."
        )
    return archive


def unpack(archive: bytes, version: str) -> None:
    """Write the bundle, its license and the record."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:

        def member(name: str) -> bytes:
            file = files.extractfile(f"package/{name}")
            if file is None:
                raise SystemExit(f"{name} is not a file of the archive.")
            return file.read()

        about = json.loads(member("package.json"))
        if (about["name"], about["version"]) != (PACKAGE, version):
            raise SystemExit(f"the archive is {about['name']} {about['version']}, not {PACKAGE} {version}.")
        bundle = member(BUNDLE)
        (ASSETS / BUNDLE).write_bytes(bundle)
        (ASSETS / LICENSE).write_bytes(member("LICENSE"))
    record = {
        "package": PACKAGE,
        "version": version,
        "license": about["license"],
        "archive_sha256": hashlib.sha256(archive).hexdigest(),
        "sha256": hashlib.sha256(bundle).hexdigest(),
    }
    (ASSETS / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def check() -> None:
    record = json.loads((ASSETS / RECORD).read_text(encoding="utf-8"))
    found = hashlib.sha256((ASSETS / BUNDLE).read_bytes()).hexdigest()
    if found != record["sha256"]:
        raise SystemExit(f"{BUNDLE} has the SHA-256 {found}; {RECORD} says {record['sha256']}.")
    print(f"{PACKAGE} {record['version']}: as recorded.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        version = sys.argv[1]
        unpack(Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else download(version), version)
    check()
