"""Parses Kotlin and Swift that no compiler here sees, and prints where the syntax is wrong: parse.py FILE…."""

import sys

import tree_sitter_kotlin
import tree_sitter_swift
from tree_sitter import Language, Parser

PARSERS = {
    "kt": Parser(Language(tree_sitter_kotlin.language())),
    "kts": Parser(Language(tree_sitter_kotlin.language())),
    "swift": Parser(Language(tree_sitter_swift.language())),
}


def wrong(node):
    """The innermost nodes that are wrong."""
    if node.is_error or node.is_missing:
        yield node
    for child in node.children:
        if child.has_error:
            yield from wrong(child)


def main(paths):
    """Ends with 1 if a file has wrong syntax, or if there are none of a language."""
    found = 0
    for path in paths:
        with open(path, "rb") as file:
            tree = PARSERS[path.rsplit(".", 1)[-1]].parse(file.read())
        for node in wrong(tree.root_node):
            row, column = node.start_point
            print(f"{path}:{row + 1}:{column + 1}: {'missing' if node.is_missing else 'unexpected'}: {node.type}")
            found += 1
    endings = {path.rsplit(".", 1)[-1] for path in paths}
    if endings != set(PARSERS):
        sys.exit(f"parsed {sorted(endings)} alone")
    print(f"parsed: {len(paths)} files of Kotlin and Swift, {found} places are wrong")
    sys.exit(found > 0)


main(sys.argv[1:])
