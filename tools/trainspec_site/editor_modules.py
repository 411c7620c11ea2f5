"""Writes the modules of CodeMirror, the editor of the playground, as browsers load them: one file for each package."""

from __future__ import annotations

import re
from pathlib import Path

from trainspec_site.npm import AssetError, Package

MODULES = (
    (
        Package(
            "@codemirror/autocomplete",
            "6.20.4",
            "yF8RhOf2SXlg00+qtupzLhrglcas61boqaONiNcbPIebHCpJocpqTBA6dyrtUrQO47hqyTdeob/3XnYilT7TaQ==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/commands",
            "6.11.1",
            "O/4hG3SC1YwcmQ0d2UVNDs+AsaNWd1iHVxbTeEBuqH+6bExAiPK3iS/BvpY6rZGURALv4ZD3sIgcCmRvw3ehBg==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/lang-yaml",
            "6.1.3",
            "AZ8DJBuXGVHybpBQhmZtgew5//4hv3tdkXnr3vDmOUMJRuB6vn/uuwtmTOTlqEaQFg3hQSVeA90NmvIQyUV6FQ==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/language",
            "6.13.1",
            "zfvU2r3TyylQLMj/te+5CnQ0rSqZi8B1oTCBbQkagcLW4Xc6imab6qN+pEJhsuNOLaJqiRyBXp9UhWA1DhVvDw==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/lint",
            "6.9.8",
            "qNvtcE73xUto/D1RvtgSRI4A1Hg8ekxlvtZpjHpdpisLBnhyu82EUEJMEgaxkjuQCA8vqnrylENWKOsEDCOHcw==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/state",
            "6.7.6",
            "kAz+AncRtKuIknedxT1bq4XwXv4UowhbkHU1myPrtVb/jZtImWuV5BXzv5vK6i3kYACsdiZiQKFQQ5Mq7elW8w==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/streamparser",
            "6.0.0",
            "JTFPF6xrfjt0mnfGPgzcLiMwYmvIyNaoizp8BYzv8FE8KrT6GBGDZ190rtt+O7Wke3gG/MFHyiY9YGNeimof4w==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@codemirror/view",
            "6.43.15",
            "HHsfpqFeHyXLs983pSRe38Xajs0vFWZQ2BuX0m7Ki8w3jZ5iD8cuR3lBz2/5/X53Dhf32SBHKh6rtSTB6tKeGw==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "crelt",
            "1.0.7",
            "aK6BbWfhf4U/wCcLHKPJl/xa6VkVstRaPywWtMKGwuOLc/wZTyQYuoxgvZnNsBvv7Kg3YTBQYYBCggcviQczuA==",
        ),
        "index.js",
    ),
    (
        Package(
            "@lezer/common",
            "1.5.5",
            "Pw7PVCndruF1pb3ebCxpSVpkMHSDjwRCLcTRw+RizUKco5QbWylwq2g4lnG/RYN7yTTQDXE9F77MwtkAyphrjg==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@lezer/highlight",
            "1.2.5",
            "O1GMVKgtf5YspFaRzpmqkVgMtIk2HG9uMAbH6wdAIdNh3TVzCsch/+cRi+6l2//UGDKe6NB9BW3cvuR5ezMQ0w==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@lezer/lr",
            "1.4.12",
            "On9HU4oMMiHPMkQDgoTnGahjgG5n/MkN38CgG77sMraKLL+3JBbeQNi1FcCXV9QRqwF9/BUXP3caHyJC1fBOTQ==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@lezer/yaml",
            "1.0.4",
            "2lrrHqxalACEbxIbsjhqGpSW8kWpUKuY6RHgnSAFZa6qK62wvnPxA8hGOwOoDbwHcOFs5M4o27mjGu+P7TvBmw==",
        ),
        "dist/index.js",
    ),
    (
        Package(
            "@marijn/find-cluster-break",
            "1.0.4",
            "Wy0V7+SGUjnF9/TkiM1hKVDPj7jKXduPNboMVtHTA8dySMURWqfg/JZ9E2Sq8JgSJmkl7k7Qe9FLeMSrSraWmQ==",
        ),
        "src/index.js",
    ),
    (
        Package(
            "style-mod",
            "4.1.5",
            "WQ2llCZa9sZSkJA+aOwpg5DkfbAXFKGh//t3MRTBeruFiSBC+GXUmbBzrw3bXyboCWAbtCW9InDfBsXrRD/rAg==",
        ),
        "src/style-mod.js",
    ),
    (
        Package(
            "w3c-keyname",
            "2.2.8",
            "dpojBhNsCNN7T82Tm7k26A6G9ML3NkhDsnw9n/eoxSRlVBB4CEtIQ/KTCLI2Fwf3ataSXRhYFkQi3SlnFwPvPQ==",
        ),
        "index.js",
    ),
)
"""Each package, with the file that a module imports by the name of the package."""
IMPORT = re.compile(
    r"^(?P<words>(?:import|export)\b[^;'\"()]*\bfrom )(?P<quote>['\"])(?P<name>[^'\"]+)(?P=quote)", re.MULTILINE
)


def write(target: Path, cache: Path) -> list[Path]:
    """Write every module into a folder, importing each other by file; what is fetched once stays in the cache.

    Raises:
        AssetError: npm cannot fetch a package, its digest differs, or a module imports what is not listed.
    """
    import rjsmin  # noqa: PLC0415 (only the environment of the site has it)

    target.mkdir(parents=True, exist_ok=True)
    names = {package.name: file_of(package) for package, _ in MODULES}
    written = []
    for package, module in MODULES:
        text = package.files(cache, module)[module].decode("utf-8")
        path = target / file_of(package)
        path.write_text(rjsmin.jsmin(by_file(package.name, text, names), keep_bang_comments=True), encoding="utf-8")
        written.append(path)
    versions = "".join(f"{package.name} {package.version}\n" for package, _ in MODULES)
    (target / "versions.txt").write_text(versions, encoding="utf-8")
    return written


def file_of(package: Package) -> str:
    """The name of a package as that of a file: `@codemirror/view` is `codemirror-view.js`."""
    return f"{package.name.removeprefix('@').replace('/', '-')}.js"


def by_file(name: str, text: str, names: dict[str, str]) -> str:
    """A module whose imports of packages are imports of files; raise AssetError for a package that is not listed."""

    def replaced(match: re.Match[str]) -> str:
        if match["name"] not in names:
            raise AssetError(f"{name} imports {match['name']}, which is not locked")
        return f"{match['words']}{match['quote']}./{names[match['name']]}{match['quote']}"

    return IMPORT.sub(replaced, text)
