"""The native code's signposts: the stub of its functions, and the sections of the documentation it names."""

import ast
import re
from pathlib import Path

import pytest

from sinkprop import _native

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "native"
STUB = ast.parse((ROOT / "src/sinkprop/_native.pyi").read_text(encoding="utf-8"))
FUNCTIONS = {node.name: node.args for node in STUB.body if isinstance(node, ast.FunctionDef)}
SECTIONS = r"docs/(?P<page>[\w/-]+\.md)(?P<sections>(?:(?:,| and)? \d+(?:\.\d+)?)*)"
ROW = re.compile(r"^\| (\d+(?:\.\d+)?)[ ,][^|]*\| `([^`]+)` \| (.+) \|$", re.M)


def parameters(signature):
    """Names of the parameters, and of those that have a default, in one overload of a bound function."""
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", signature)) != signature:
        signature = shorter
    inner = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    words = [part.strip() for part in inner.split(",") if part.strip()]
    return [word.split(":")[0] for word in words], [word.split(":")[0] for word in words if " = " in word]


def headings(page):
    """The numbers of a page's sections."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, re.M))


def test_stub_and_module_have_the_same_names():
    bound = {name for name, value in vars(_native).items() if hasattr(value, "__nb_signature__")}
    assert bound == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stub_has_the_parameters_of_the_binding(name):
    stub = [a.arg for a in FUNCTIONS[name].args]
    with_default = stub[len(stub) - len(FUNCTIONS[name].defaults) :]
    for signature, *_ in getattr(_native, name).__nb_signature__:
        assert parameters(signature) == (stub, with_default)


@pytest.mark.parametrize("header", sorted(NATIVE.glob("kernels/*.hpp")), ids=lambda path: path.name)
def test_header_of_a_kernel_names_what_documents_it(header):
    comment = re.sub(r"\n// *", " ", header.read_text(encoding="utf-8").split("#pragma once")[0])
    named = list(re.finditer(SECTIONS, comment))
    assert named, "the comment at the head names no docs/<page>.md"
    for mention in named:
        assert set(re.findall(r"\d+(?:\.\d+)?", mention["sections"])) <= headings(mention["page"])


def test_readme_leads_from_each_section_to_its_code():
    rows = ROW.findall((NATIVE / "README.md").read_text(encoding="utf-8"))
    without_code = {"1", "3", "4", "6", "6.1", "6.2", "6.3", "10"}
    assert {section for section, _, _ in rows} == headings("linear-time.md") - without_code
    for _, file, names in rows:
        code = (NATIVE / file).read_text(encoding="utf-8")
        assert [name for name in re.findall(r"`(\w+)`", names) if not re.search(rf"\b{name}\b", code)] == []


@pytest.mark.parametrize("name", ["Settings", "Gains", "Terms"])
def test_stub_has_the_types_of_the_records(name):
    from sinkprop.objective import native_terms

    tuples = {node.targets[0].id: node.value for node in STUB.body if isinstance(node, ast.Assign)}
    types = [ast.unparse(item) for item in tuples[name].slice.elts]
    fields = getattr(native_terms, f"Native{name}").__annotations__.values()
    assert types == [field.__forward_arg__ for field in fields]
