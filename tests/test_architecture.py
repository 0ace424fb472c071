"""The layout of the source: docs/architecture.md is complete, and the rules that import-linter cannot see."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/sinkprop"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
EVERY_MODULE = PAGE.split("\n## Every module\n")[1]
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# private names of other packages, or of none, that have no public counterpart; each must still be in use
PRIVATE = {
    "_asdict": "public by NamedTuple's documentation",
    "_get_all_param_aliases": "LightGBM's table of parameter names",
    "_LIB": "LightGBM's C interface, which its Dataset does not offer for rows in chunks",
    "_safe_call": "the same",
    "_c_str": "the same",
    "_param_dict_to_str": "the same",
    "_get_sample_count": "the same",
    "_init_from_ref_dataset": "the same",
    "_push_rows": "the same",
    "_start_row": "the same",
    "_InnerPredictor": "LightGBM's type of the model from which training continues",
    "_C": "torch's own tests of its modes",
    "_functorch": "the same",
    "_are_functorch_transforms_active": "the same",
    "_current_level": "the same",
    "_inheriting": "multiprocessing's mark of a process that is being spawned",
}
OPENINGS = r"(Of|Those|That|Both|These|Such|What|Whatever|Who|Which|How|Where|As)\b"
# the field says validation, label and baseline
FOREIGN = r"(?i)judg(?!ed_by\")|\brivals?\b|\bone's own\b|\bwhatever\b|\bwhoever\b"


@pytest.fixture(scope="module")
def trees():
    """The syntax tree of every module, by its path."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def defined(tree):
    """Names that a module defines: functions, classes, variables, and attributes that it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def foreign_privates(tree):
    """(line, name) of the private names that a module uses and does not define."""
    own = set(defined(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sinkprop"):
            used = [alias.name for alias in node.names if alias.name != "_native"]
        elif isinstance(node, ast.Attribute):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value
            inherited = isinstance(owner, ast.Name) and owner.id in ("self", "cls", "super")
            used = (
                []
                if inherited or node.attr in own or ast.unparse(node) == "sinkprop._native"
                else [node.attr]
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            used = [a.value for a in node.args[1:2] if isinstance(a, ast.Constant) and a.value not in own]
        else:
            continue
        yield from ((node.lineno, name) for name in used if is_private(name))


def test_no_module_uses_a_private_name_of_another(trees):
    found = [(path, *use) for path, tree in trees.items() for use in foreign_privates(tree)]
    assert [use for use in found if use[2] not in PRIVATE] == []
    assert {name for _, _, name in found} == set(PRIVATE), "an exception that nothing uses"


def test_the_root_is_imported_for_native_code_version_and_packages_only(trees):
    # import-linter ignores imports of the root, through which any name could come
    allowed = {"_native", "__version__"} | {path.split("/")[0].removesuffix(".py") for path in trees}
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.level or node.module == "sinkprop"):
                found += [(path, node.lineno, "." * node.level + alias.name) for alias in node.names]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "sinkprop":
                found += [(path, node.lineno, node.attr)] * (
                    not path.startswith("cli/")
                )  # cli uses all of it
    assert [use for use in found if use[2] not in allowed] == []


def test_folders_are_small(trees):
    modules = [path for path in trees if not path.endswith("__init__.py")]  # which is the folder itself
    sizes = Counter(path.rpartition("/")[0] for path in modules)
    assert sizes.pop("") <= 6
    assert {folder: n for folder, n in sizes.items() if n > 16} == {}


def test_the_page_lists_every_module_with_the_first_line_of_its_docstring(trees):
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", EVERY_MODULE, re.M)
    assert Counter(path for path, _ in rows) == Counter(list(trees))
    for path, text in rows:
        first = ast.get_docstring(trees[path]).split("\n")[0]
        assert f"{text}." == first, f"{path}: docs/architecture.md has another line than its docstring"


def test_paths_and_names_on_the_page_exist():
    for path in re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|toml))`", PAGE):
        assert (SOURCE / path).exists() or (ROOT / path).exists(), path
    rows = re.findall(r"^\| .+ \| `(.+\.\w+)` \| (`\w.+) \|$", PAGE.split("\n## The rule")[0], re.M)
    assert len(rows) > 20
    for path, names in rows:
        code = ((SOURCE if (SOURCE / path).exists() else ROOT) / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", " ".join(re.findall(r"`(.+?)`", names))):
            assert re.search(rf"(def|class|struct|void|double|Lanes|LetorFailure) {name}\b", code), (
                f"{path}: {name}"
            )


def test_docstrings_begin_with_what_they_are_about(trees):
    found = [
        (path, text.split("\n")[0])
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) and re.match(OPENINGS, text)
    ]
    assert found == []


def test_the_source_uses_the_words_of_the_field():
    native = (path for path in (ROOT / "native").rglob("*") if path.is_file())
    found = [
        f"{path.name}: {line.strip()}"
        for path in [*(ROOT / "src").rglob("*.py"), *native]
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(FOREIGN, line)
    ]
    assert found == []
