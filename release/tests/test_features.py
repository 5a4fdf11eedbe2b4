"""Cargo compiles the bindings' shared dependencies once: redlock-features gives them equal features everywhere."""

from __future__ import annotations

import subprocess
from collections import defaultdict

from release.targets import ROOT

# Each is built by itself, so cargo chooses features for each separately.
CRATES = ["redlock-python", "redlock-node", "redlock-kotlin"]


def asked(crate: str) -> dict[str, set[str]]:
    """The features of each dependency of a crate: two sets if a procedural macro also uses the dependency."""
    command = ["cargo", "tree", "--locked", "--package", crate, "--edges", "normal", "--prefix", "none"]
    command += ["--no-dedupe", "--format", "{p}|{f}"]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    features = defaultdict(set)
    for line in said.splitlines():
        name, _, of_it = line.partition("|")
        features[name.removesuffix(" (proc-macro)")].add(of_it.removesuffix(" (*)"))
    return features


def test_every_binding_uses_shared_dependencies_with_the_same_features() -> None:
    trees = {crate: asked(crate) for crate in CRATES}
    shared = {name for tree in trees.values() for name in tree if name.startswith(("tokio v", "redis v", "syn v"))}
    assert len(shared) > 3, "looks at what it should"
    differ = []
    for name in sorted({name for tree in trees.values() for name in tree}):
        asking = {crate: tree[name] for crate, tree in trees.items() if name in tree}
        if not set.intersection(*asking.values()):
            differ.append(f"{name}: {asking}; add what differs to bindings/features/Cargo.toml")
    assert differ == []
