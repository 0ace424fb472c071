#!/usr/bin/env python3
"""The data set that ships with sinkprop: search over the docstrings of Python's standard library.

    make_pydocs.py make [DIR]      collect documents, label, pool, compute features, write S1..S5 and tables
    make_pydocs.py check [DIR]     five-fold test NDCG@10 of single features, least squares and better models
    make_pydocs.py show [WORDS]    the best documents of the queries that contain these words, with labels

DIR is src/sinkprop/datasets/pydocs by default. `make` and `show` need only the standard library. Use the
Python version that the data card names, since the documents are the docstrings of the interpreter, and run
them with `python -I`. The queries and their labels are in pydocs_judgments.txt. `check` needs NumPy, SciPy
and sinkprop, and includes LightGBM if it is installed.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import hashlib
import importlib
import importlib.util
import inspect
import lzma
import math
import platform
import random
import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "src" / "sinkprop" / "datasets" / "pydocs"
JUDGMENTS = HERE / "pydocs_judgments.txt"
N_PARTS = 5

# The documented modules, except those that interpreters are often built without (tkinter, curses, readline),
# those whose import has an effect (antigravity, this), and duplicates (posix is os, posixpath is os.path).
MODULES = """
abc argparse array ast asyncio asyncio.subprocess atexit base64 bdb binascii bisect builtins bz2 cProfile
calendar cmath cmd code codecs codeop collections collections.abc colorsys compileall concurrent.futures
configparser contextlib contextvars copy copyreg csv ctypes ctypes.util dataclasses datetime dbm dbm.dumb
dbm.sqlite3 decimal difflib dis doctest email email.charset email.contentmanager email.encoders email.errors
email.generator email.header email.headerregistry email.iterators email.message email.mime.application
email.mime.audio email.mime.base email.mime.image email.mime.message email.mime.multipart
email.mime.nonmultipart email.mime.text email.parser email.policy email.utils enum errno faulthandler fcntl
filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob graphlib grp gzip
hashlib heapq hmac html html.entities html.parser http http.client http.cookiejar http.cookies http.server
imaplib importlib importlib.abc importlib.machinery importlib.metadata importlib.resources
importlib.resources.abc importlib.util inspect io ipaddress itertools json keyword linecache locale logging
logging.config logging.handlers lzma mailbox marshal math mimetypes mmap modulefinder multiprocessing
multiprocessing.connection multiprocessing.managers multiprocessing.pool multiprocessing.shared_memory
multiprocessing.sharedctypes netrc numbers operator optparse os os.path pathlib pdb pickle pickletools
pkgutil platform plistlib poplib pprint profile pstats pty pwd py_compile pyclbr pydoc queue quopri random
re reprlib resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtplib
socket socketserver sqlite3 ssl stat statistics string stringprep struct subprocess symtable sys sysconfig
syslog tabnanny tarfile tempfile termios textwrap threading time timeit token tokenize tomllib trace
traceback tracemalloc tty types typing unicodedata unittest unittest.mock urllib.error urllib.parse
urllib.request urllib.response urllib.robotparser uuid venv warnings wave weakref webbrowser wsgiref
wsgiref.handlers wsgiref.headers wsgiref.simple_server wsgiref.util wsgiref.validate xml.dom xml.dom.minidom
xml.dom.pulldom xml.etree.ElementTree xml.parsers.expat xml.sax xml.sax.handler xml.sax.saxutils
xml.sax.xmlreader xmlrpc.client xmlrpc.server zipapp zipfile zipimport zlib zoneinfo
"""

# The public name of a class that is meant to be private: its methods belong to socket.socket.
NOT_DOCUMENTS = {"socket.SocketType"}

MEMBERS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
)

FIELDS = ("name", "signature", "summary", "body", "whole")

STOP_WORDS = """
a an and any are as at be been being but by can could did do does doing done for from had has have he her his
how i if in into is it its me my no not of off on one or our out own she should so some such than that the
their them then there these they this those to too was we were what when where which who whom why will with
would you your
"""


@dataclass(frozen=True)
class Document:
    """A module, class, function or method, with the words of its four fields and of all fields together."""

    docid: str
    kind: str  # module, class, function or method; a property counts as a method
    module: str
    parent: str  # docid of the enclosing class or module; for a module, its own docid
    words: dict[str, tuple[str, ...]]
    n_parameters: int
    line: str  # the original text of the summary, for display


@dataclass(frozen=True)
class Query:
    """A query with its labels, given as patterns of docids for each label."""

    kind: str  # known or topical
    text: str
    patterns: dict[int, tuple[str, ...]]


def collect(names: Sequence[str] = tuple(MODULES.split())) -> list[Document]:
    """Collect every documented object of the modules once, under its public name, sorted by docid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = {name: importlib.import_module(name) for name in names}
        # builtins have no prefix, as in the reference manual: str.split, sorted
        found = [(name, "module", name, name, module) for name, module in modules.items()]
        things = _public_things(modules)
        found += [
            (docid, "class" if inspect.isclass(thing) else "function", module, module, thing)
            for docid, module, thing in things
        ]
        found += _members(things)
        documents = [document for entry in found if (document := _document(*entry))]
    documents.sort(key=lambda document: document.docid)
    twice = [docid for docid, n in Counter(document.docid for document in documents).items() if n > 1]
    if twice:
        raise RuntimeError(f"docids must be unique; {twice} are not")
    return documents


def _public_things(modules: dict[str, types.ModuleType]) -> list[tuple[str, str, Any]]:
    """(docid, module, object) of each public class and function, under its best name.

    The best name is that in its own module, else in the first of MODULES that exports it. Its __name__ is
    preferred to an alias.
    """
    names: dict[int, list[tuple[bool, int, bool, str, str]]] = {}
    things: dict[int, Any] = {}
    for order, (module_name, module) in enumerate(modules.items()):
        exported = getattr(module, "__all__", None)
        for name in sorted(set(vars(module) if exported is None else exported)):
            thing = getattr(module, name, None)
            if name.startswith("_") or f"{module_name}.{name}" in NOT_DOCUMENTS:
                continue
            if isinstance(thing, types.GenericAlias) or not (
                inspect.isclass(thing) or inspect.isroutine(thing)
            ):
                continue
            home = getattr(thing, "__module__", None) or module_name
            if exported is None and home != module_name and not home.startswith("_"):
                continue  # imported from another module
            thing = _underlying(thing)
            alias = name != getattr(thing, "__name__", name)
            names.setdefault(id(thing), []).append((home != module_name, order, alias, name, module_name))
            things[id(thing)] = thing
    best = []
    for key, candidates in names.items():
        *_, name, module_name = min(candidates)
        best.append(
            (name if module_name == "builtins" else f"{module_name}.{name}", module_name, things[key])
        )
    return best


def _underlying(thing: Any) -> Any:
    """The function of a bound method, such as random.sample, which is a method of a hidden Random."""
    owner = getattr(thing, "__self__", None)
    of_instance = owner is not None and not isinstance(owner, type | types.ModuleType)
    if of_instance and isinstance(thing, types.BuiltinFunctionType):
        return getattr(type(owner), thing.__name__)
    return getattr(thing, "__func__", thing)


def _members(things: list[tuple[str, str, Any]]) -> Iterator[tuple[str, str, str, str, Any]]:
    """Methods and properties, each under the class that defines it.

    If this class is private, they belong to its nearest public subclass. Methods that a module also exports
    as functions, such as random.sample, are left out.
    """
    public = {id(thing) for _, _, thing in things}
    classes = [(docid, module, thing) for docid, module, thing in things if inspect.isclass(thing)]
    claims: dict[int, list[tuple[int, int, bool, str, str, str]]] = {}
    members: dict[int, Any] = {}
    for order, (docid, module, cls) in enumerate(classes):
        documented: dict[str, set[str]] = {}  # docstrings of the name in public base classes
        for base in cls.__mro__[1:]:
            if id(base) in public:
                for name, member in vars(base).items():
                    documented.setdefault(name, set()).add(str(getattr(member, "__doc__", "")))
        own: set[str] = set()
        for distance, base in enumerate(cls.__mro__):
            if distance and (id(base) in public or not _is_private(base)):
                break
            for name, member in vars(base).items():
                if name.startswith("_") or name in own or not isinstance(member, MEMBERS):
                    continue
                if not member.__doc__:
                    continue
                own.add(name)
                if str(member.__doc__) in documented.get(name, ()):
                    continue  # the same docstring as in the base class
                key = id(getattr(member, "__func__", member))
                alias = name != getattr(member, "__name__", name)
                claims.setdefault(key, []).append((distance, order, alias, name, docid, module))
                members[key] = member
    for key, candidates in claims.items():
        _, _, _, name, docid, module = min(candidates)
        if key not in public:
            yield f"{docid}.{name}", "method", module, docid, members[key]


def _is_private(cls: type) -> bool:
    return any(part.startswith("_") for part in (cls.__name__, *cls.__module__.split(".")))


def _document(docid: str, kind: str, module: str, parent: str, thing: Any) -> Document | None:
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    text = inspect.cleandoc(text) if isinstance(text, str) else ""
    name = docid.rpartition(".")[2]
    generated = re.match(r"Alias for field number \d+$", text) or (
        kind == "class" and "\n" not in text and re.match(rf"{re.escape(thing.__name__)}\(.*\)$", text)
    )
    if generated:
        text = ""
    if not text and kind != "module":
        return None
    written, summary, body = split_docstring(name, text)
    parameters = _parameters(thing) if kind != "module" else []
    if parameters is None:
        parameters = written
    words = {
        "name": tuple(tokens(docid)),
        "signature": tuple(word for parameter in parameters for word in tokens(parameter)),
        "summary": tuple(tokens(summary)),
        "body": tuple(tokens(body)),
    }
    words["whole"] = tuple(word for field in FIELDS[:4] for word in words[field])
    return Document(docid, kind, module, parent, words, len(parameters), summary)


def _parameters(thing: Any) -> list[str] | None:
    """Names of the parameters, without self and cls; None if there is no signature."""
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if not callable(thing):
        return []
    try:
        names = list(inspect.signature(thing).parameters)
    except (TypeError, ValueError, AttributeError):  # the last from a default of select.epoll.register
        return None
    return [name for name in names if name not in {"self", "cls"}]


def split_docstring(name: str, text: str) -> tuple[list[str], str, str]:
    r"""Parameters, summary and body of a docstring.

    Old docstrings start with a signature, "name(a[, b]) -> result" or "name(a) -- summary". The parameters
    are taken from it, and the summary is the text that follows.

    >>> split_docstring("f", "f(x[, limit]) -> int\n\nReturn it.\nThe rest.")
    (['x', 'limit'], 'Return it.', 'The rest.')
    """
    lines = text.splitlines()
    parameters: list[str] = []
    result = ""
    while lines:
        match = re.match(
            rf"(?:\w+\.)*{re.escape(name)}\((.*?)\)\s*(?:-+>\s*(.*?))?\s*(?:--+\s+(.*)|--+)?$", lines[0]
        )
        if not match:
            break
        for parameter in re.findall(r"[A-Za-z_]\w*(?=\s*(?:[=,\[\]:]|$))", match[1]):
            if parameter not in {*parameters, "None", "True", "False"}:
                parameters.append(parameter)
        result = result or match[2] or ""
        lines = lines[1:]
        if match[3]:
            lines = [match[3], *lines]
            break
        while lines and (not lines[0].strip() or lines[0][0].isspace()):  # also a signature's second line
            lines = lines[1:]
    lines = lines or [result]
    return parameters, lines[0].strip(), "\n".join(lines[1:]).strip()


def tokens(text: str) -> list[str]:
    """Stems of the words of a text or an identifier, without stop words, single letters and numbers.

    >>> tokens("Returns an IPv4Address for os.path_like strings")
    ['return', 'ipv4', 'address', 'os', 'path', 'like', 'string']
    """
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*", text.replace("IPv", "Ipv"))
    lower = (word.lower() for word in words)
    return [stem(word) for word in lower if len(word) > 1 and word not in _stop_words()]


@functools.cache
def _stop_words() -> frozenset[str]:
    return frozenset(STOP_WORDS.split())


def stem(word: str) -> str:
    """A word without plural, past and participle endings: step 1 of Porter (1980), then without a final e.

    >>> [stem(w) for w in ("copy", "copies", "parse", "parsing", "matches", "running", "files", "string")]
    ['copi', 'copi', 'pars', 'pars', 'match', 'run', 'file', 'string']
    """
    vowel = re.compile("[aeiou]|(?<=[^aeiou])y")
    if word.endswith("sses") or word.endswith("ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    if word.endswith("eed"):
        if re.search("[aeiouy][^aeiouy]", word[:-3]):
            word = word[:-1]
    else:
        for ending in ("ed", "ing"):
            root = word.removesuffix(ending)
            if root == word or not vowel.search(root):
                continue
            if root.endswith(("at", "bl", "iz")):
                word = root + "e"
            elif len(root) > 1 and root[-1] == root[-2] and root[-1] not in "aeioulsz":
                word = root[:-1]
            elif re.fullmatch("[^aeiou]*[aeiouy][^aeiouwxy]", root):
                word = root + "e"  # a short root: using -> use
            else:
                word = root
            break
    if word.endswith("y") and vowel.search(word[:-1]):
        word = word[:-1] + "i"
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


@dataclass(frozen=True)
class Index:
    """Word statistics of one field over all documents.

    tf[d][t]    Occurrences of word t in document d.
    length[d]   Number of words in d.
    df[t]       Number of documents that contain t.
    cf[t]       Occurrences of t in all documents.
    vocabulary  Number of different words in whole documents.
    """

    tf: list[Counter[str]]
    length: list[int]
    df: Counter[str]
    cf: Counter[str]
    vocabulary: int

    @classmethod
    def of(cls, documents: Iterable[Sequence[str]], vocabulary: int) -> Index:
        tf = [Counter(words) for words in documents]
        df: Counter[str] = Counter()
        cf: Counter[str] = Counter()
        for counts in tf:
            df.update(counts.keys())
            cf.update(counts)
        return cls(tf, [sum(counts.values()) for counts in tf], df, cf, vocabulary)

    @functools.cached_property
    def n(self) -> int:
        return len(self.tf)

    @functools.cached_property
    def documents(self) -> dict[str, list[int]]:
        """The documents that contain each word, in increasing order."""
        found: dict[str, list[int]] = {}
        for d, counts in enumerate(self.tf):
            for word in counts:
                found.setdefault(word, []).append(d)
        return found

    @functools.cached_property
    def total(self) -> int:
        return sum(self.length)

    @functools.cached_property
    def mean_length(self) -> float:
        return self.total / self.n

    def idf(self, word: str) -> float:
        """log(1 + (n - df + 1/2) / (df + 1/2)): positive for every word."""
        df = self.df[word]
        return math.log(1 + (self.n - df + 0.5) / (df + 0.5))

    def background(self, word: str) -> float:
        """P(t|C), with half an occurrence added to every word so that no probability is 0."""
        return (self.cf[word] + 0.5) / (self.total + 0.5 * self.vocabulary)


def sum_tf(index: Index, d: int, query: Sequence[str]) -> float:
    return float(sum(index.tf[d][t] for t in query))


def sum_idf(index: Index, d: int, query: Sequence[str]) -> float:
    return math.fsum(index.idf(t) for t in query if index.tf[d][t])


def tf_idf(index: Index, d: int, query: Sequence[str]) -> float:
    return math.fsum(math.log1p(index.tf[d][t]) * index.idf(t) for t in query)


def bm25(index: Index, d: int, query: Sequence[str], *, k1: float = 1.2, b: float = 0.75) -> float:
    norm = k1 * (1 - b + b * index.length[d] / index.mean_length)
    return math.fsum(index.idf(t) * tf * (k1 + 1) / (tf + norm) for t in query if (tf := index.tf[d][t]))


def lm_jelinek_mercer(index: Index, d: int, query: Sequence[str], *, weight: float = 0.5) -> float:
    length = max(index.length[d], 1)
    return math.fsum(
        math.log((1 - weight) * index.tf[d][t] / length + weight * index.background(t)) for t in query
    )


def lm_dirichlet(index: Index, d: int, query: Sequence[str], *, mu: float | None = None) -> float:
    mu = index.mean_length if mu is None else mu
    return math.fsum(
        math.log((index.tf[d][t] + mu * index.background(t)) / (index.length[d] + mu)) for t in query
    )


def lm_absolute(index: Index, d: int, query: Sequence[str], *, delta: float = 0.7) -> float:
    length, distinct = index.length[d], len(index.tf[d])
    if not length:
        return math.fsum(math.log(index.background(t)) for t in query)
    return math.fsum(
        math.log((max(index.tf[d][t] - delta, 0.0) + delta * distinct * index.background(t)) / length)
        for t in query
    )


def field_length(index: Index, d: int, query: Sequence[str]) -> float:
    return math.log1p(index.length[d])


def coverage(index: Index, d: int, query: Sequence[str]) -> float:
    return sum(1 for t in query if index.tf[d][t]) / len(query) if query else 0.0


FieldFeature = Callable[[Index, int, Sequence[str]], float]

FIELD_FEATURES: dict[str, tuple[FieldFeature, str]] = {
    "tf": (sum_tf, "sum tf"),
    "idf": (sum_idf, "sum idf over the query's words that occur"),
    "tfidf": (tf_idf, "sum log(1 + tf) idf"),
    "bm25": (bm25, "sum idf tf (k1 + 1) / (tf + k1 (1 - b + b len / avglen)), k1 = 1.2, b = 0.75"),
    "lm_jm": (lm_jelinek_mercer, "sum log((1 - w) tf / len + w P(t|C)), w = 0.5"),
    "lm_dir": (lm_dirichlet, "sum log((tf + mu P(t|C)) / (len + mu)), mu = avglen"),
    "lm_abs": (
        lm_absolute,
        "sum log((max(tf - d, 0) + d distinct P(t|C)) / len), d = 0.7; sum log P(t|C) if len = 0",
    ),
    "length": (field_length, "log(1 + len)"),
    "coverage": (coverage, "fraction of the query's words that occur"),
}

DOCUMENT_FEATURES: dict[str, str] = {
    "parent_bm25": "whole_bm25 of the class or module that it stands in, or its own for a module",
    "depth": "number of parts of the qualified name",
    "kind": "0 method or property, 1 function, 2 class, 3 module",
    "parameters": "log(1 + number of parameters)",
    "siblings": "log(1 + number of documents that stand in the same module or class)",
}


class Collection:
    """The documents, with one index per field."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        vocabulary = len({word for document in documents for word in document.words["whole"]})
        self.index = {f: Index.of([d.words[f] for d in documents], vocabulary) for f in FIELDS}
        self.siblings = Counter(document.parent for document in documents if document.kind != "module")
        self.number = {document.docid: i for i, document in enumerate(documents)}

    def words(self, text: str) -> list[str]:
        """The distinct words of a query that occur in any document, in order."""
        df = self.index["whole"].df
        return [word for word in dict.fromkeys(tokens(text)) if df[word]]

    def features(self, d: int, query: Sequence[str]) -> list[float]:
        """The features of one document for one query, in the order of `feature_table`."""
        values = [f(self.index[field], d, query) for field in FIELDS for f, _ in FIELD_FEATURES.values()]
        document = self.documents[d]
        siblings = self.siblings[document.parent] - (document.kind != "module")
        parent = self.number.get(document.parent)  # a class without a docstring is not a document
        return [
            *values,
            0.0 if parent is None else bm25(self.index["whole"], parent, query),
            float(document.docid.count(".") + 1),
            float(("method", "function", "class", "module").index(document.kind)),
            math.log1p(document.n_parameters),
            math.log1p(siblings),
        ]

    def ranking(self, feature: FieldFeature, field: str, query: Sequence[str]) -> list[int]:
        """Documents that contain a word of the query in a field, best first."""
        index = self.index[field]
        scored = [
            (-feature(index, d, query), self.documents[d].docid, d)
            for d in {d for t in query for d in index.documents.get(t, ())}
        ]
        return [d for _, _, d in sorted(scored)]


def feature_table() -> list[tuple[int, str, str, str]]:
    """(id, name, field, formula) of each feature."""
    rows = [
        (f"{field}_{name}", field, formula)
        for field in FIELDS
        for name, (_, formula) in FIELD_FEATURES.items()
    ]
    rows += [(name, "document", formula) for name, formula in DOCUMENT_FEATURES.items()]
    return [(i, *row) for i, row in enumerate(rows, 1)]


def read_judgments(path: Path) -> list[Query]:
    """Read queries from paragraphs: "known: text" or "topical: text", then "2 pattern ..." and "1 ..."."""
    queries = []
    for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        lines = [line for line in paragraph.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        kind, _, text = lines[0].partition(": ")
        grades = {int(line[0]): tuple(line[1:].split()) for line in lines[1:]}
        if kind not in {"known", "topical"} or not text or not set(grades) <= {1, 2} or 2 not in grades:
            raise ValueError(f"{path.name}: not a query with its grades: {lines[0]!r}")
        queries.append(Query(kind, text, grades))
    twice = [text for text, n in Counter(query.text for query in queries).items() if n > 1]
    if twice:
        raise ValueError(f"{path.name}: queries must be different; twice: {twice}")
    return queries


def matching(pattern: str, docids: dict[str, int]) -> list[str]:
    """The docids that a pattern matches, without its "!"."""
    pattern = pattern.removeprefix("!")
    return [pattern] if pattern in docids else fnmatch.filter(docids, pattern)


def grades(query: Query, collection: Collection) -> dict[int, int]:
    """Labels by document number: the highest label of the patterns that a docid matches.

    The class or module that contains the target of a known-item query has label 1. "!pattern" removes
    documents from the preceding patterns. Every pattern must match a document, so that a misspelled one is an
    error.
    """
    graded: dict[int, int] = {}
    for grade in (1, 2):
        chosen: dict[str, None] = {}
        for pattern in query.patterns.get(grade, ()):
            found = matching(pattern, collection.number)
            if not found:
                raise ValueError(f"{query.text!r}: no document matches {pattern!r}")
            for docid in found:
                if pattern.startswith("!"):
                    chosen.pop(docid, None)
                else:
                    chosen[docid] = None
        graded.update((collection.number[docid], grade) for docid in chosen)
    if query.kind == "known":
        targets = [d for d, grade in graded.items() if grade == 2]
        if len(targets) != 1:
            raise ValueError(f"{query.text!r}: a known item is one document, not {len(targets)}")
        parent = collection.documents[targets[0]].parent
        if parent in collection.number:
            graded.setdefault(collection.number[parent], 1)
    return graded


# The rankings that are pooled, so that no single one decides which documents are labeled.
RUNS: tuple[tuple[FieldFeature, str], ...] = (
    (bm25, "whole"),
    (bm25, "name"),
    (bm25, "summary"),
    (bm25, "body"),
    (bm25, "signature"),
    (lm_dirichlet, "whole"),
    (lm_jelinek_mercer, "summary"),
    (coverage, "name"),
)
SMALLEST_POOL, LARGEST_POOL = 50, 200


def pool(query: Query, graded: dict[int, int], collection: Collection) -> list[int]:
    """The documents of a query, in random order.

    Their number is drawn between 50 and 200, uniformly in its logarithm. The pool contains all relevant
    documents with a word of the query, at any rank. Of the rest, three fifths come from the rankings in turn,
    one fifth from the modules of the documents so far, and one fifth from all documents. The last two may
    also add relevant documents without a word of the query.
    """
    rng = random.Random(f"pool of {query.text}")
    size = round(SMALLEST_POOL * (LARGEST_POOL / SMALLEST_POOL) ** rng.random())
    words = collection.words(query.text)
    tf = collection.index["whole"].tf
    chosen = dict.fromkeys(d for d in sorted(graded) if any(tf[d][t] for t in words))
    rest = max(size - len(chosen), size // 3)
    rankings = [iter(collection.ranking(feature, field, words)) for feature, field in RUNS]
    found = 0
    while rankings and found < 3 * rest // 5:
        for ranking in list(rankings):
            d = next((d for d in ranking if d not in chosen), None)
            if d is None:
                rankings.remove(ranking)
            elif found < 3 * rest // 5:
                chosen[d] = None
                found += 1
    modules = {collection.documents[d].module for d in chosen}
    near = [d for d, doc in enumerate(collection.documents) if doc.module in modules and d not in chosen]
    chosen.update(dict.fromkeys(rng.sample(near, min(rest // 5, len(near)))))
    anywhere = [d for d in range(len(collection.documents)) if d not in chosen]
    chosen.update(dict.fromkeys(rng.sample(anywhere, max(size - len(chosen), 0))))
    order = list(chosen)
    rng.shuffle(order)
    return order


def query_level_norm(rows: list[list[float]]) -> list[list[float]]:
    """Each column scaled to [0, 1] within the query, as in LETOR's QueryLevelNorm; 0 if it is constant."""
    columns = []
    for column in zip(*rows, strict=True):
        low, high = min(column), max(column)
        # sums of the same terms may differ in the last bits
        constant = high - low <= 1e-12 * max(abs(low), abs(high))
        columns.append([0.0 if constant else (value - low) / (high - low) for value in column])
    return [list(row) for row in zip(*columns, strict=True)]


def letor_line(grade: int, qid: int, values: Sequence[float], docid: str) -> str:
    r"""A line of LETOR text. Values have six decimals, without trailing zeros.

    >>> letor_line(2, 7, [0.5, 0.0, 1.0], "heapq.merge")
    '2 qid:7 1:0.5 2:0 3:1 #docid = heapq.merge\n'
    """
    numbers = (f"{value:.6f}".rstrip("0").rstrip(".") for value in values)
    pairs = " ".join(f"{i}:{number}" for i, number in enumerate(numbers, 1))
    return f"{grade} qid:{qid} {pairs} #docid = {docid}\n"


def deal(queries: list[Query]) -> list[list[Query]]:
    """Five parts with the same share of each kind of query, in pseudorandom order."""
    parts: list[list[Query]] = [[] for _ in range(N_PARTS)]
    shuffled = sorted(queries, key=lambda q: (q.kind, hashlib.sha256(q.text.encode()).digest()))
    for i, query in enumerate(shuffled):
        parts[i % N_PARTS].append(query)
    for part in parts:
        part.sort(key=lambda q: hashlib.sha256(q.text.encode()).digest())
    return parts


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    collection = Collection(collect())
    queries = read_judgments(JUDGMENTS)
    numbered: list[tuple[int, Query]] = []
    judged, deep = 0, 0
    for i, part in enumerate(deal(queries), 1):
        lines = []
        for query in part:
            qid = len(numbered) + 1
            numbered.append((qid, query))
            graded = grades(query, collection)
            documents = pool(query, graded, collection)
            words = collection.words(query.text)
            first = set(collection.ranking(bm25, "whole", words)[:50])
            judged += sum(d in graded for d in documents)
            deep += sum(d in graded and d not in first for d in documents)
            rows = query_level_norm([collection.features(d, words) for d in documents])
            lines += [
                letor_line(graded.get(d, 0), qid, row, collection.documents[d].docid)
                for d, row in zip(documents, rows, strict=True)
            ]
        packed = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
        (folder / f"S{i}.txt.xz").write_bytes(packed)
    _write_table(folder / "queries.tsv", ("qid", "kind", "text"), [(n, q.kind, q.text) for n, q in numbered])
    _write_table(folder / "features.tsv", ("id", "name", "field", "formula"), feature_table())
    kinds = Counter(document.kind for document in collection.documents)
    version = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"{version}: {len(collection.documents)} documents, {dict(sorted(kinds.items()))}")
    print(f"{judged} rows of grade 1 or 2; BM25 on whole documents has {deep} of them below rank 50")
    for path in sorted([*folder.glob("S*.txt.xz"), *folder.glob("*.tsv")]):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size, path.name)


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    lines = ["\t".join(map(str, row)) + "\n" for row in [header, *rows]]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def show(words: list[str], top: int) -> None:
    """Print the first documents of the pooled rankings, for labeling by a person."""
    collection = Collection(collect())
    for query in read_judgments(JUDGMENTS):
        if not all(word in query.text for word in words):
            continue
        graded = grades(query, collection)
        terms = collection.words(query.text)
        print(f"\n{query.kind}: {query.text}   {terms}")
        rankings = [collection.ranking(feature, field, terms)[:top] for feature, field in RUNS]
        best = {d: sum(1 / (60 + r.index(d)) for r in rankings if d in r) for r in rankings for d in r}
        found = sorted(best, key=lambda d: (-best[d], d))[:top]
        for d in [*found, *(d for d in graded if d not in found)]:
            document = collection.documents[d]
            where = f"{found.index(d) + 1:3d}" if d in found else "   "
            print(f"{where} {graded.get(d, '.')} {document.docid}  {document.line[:70]}")


def read_part(path: Path) -> tuple[Any, Any, Any]:
    """Features (N, D), labels (N,) and query ids (N,) of a part."""
    import numpy as np

    features, labels, qids = [], [], []
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        label, qid, *pairs = line.partition(" #")[0].split(" ")
        labels.append(float(label))
        qids.append(int(qid.removeprefix("qid:")))
        features.append([float(pair.partition(":")[2]) for pair in pairs])
    return np.array(features), np.array(labels), np.array(qids)


def ndcg(labels: Any, scores: Any, qids: Any, k: int = 10) -> Any:
    """NDCG@k of each query, as in LETOR: gain 2^r - 1, D(1) = 1, D(j) = 1 / log2 j, ties in file order."""
    import numpy as np

    discount = 1 / np.log2(np.maximum(np.arange(1, k + 1), 2))
    values = []
    for qid in np.unique(qids):
        rows = qids == qid
        gains = 2 ** labels[rows] - 1
        found = gains[np.argsort(-scores[rows], kind="stable")][:k]
        ideal = np.sort(gains)[::-1][:k]
        values.append((found @ discount[: len(found)]) / (ideal @ discount[: len(ideal)]))
    return np.array(values)


def least_squares(X: Any, y: Any) -> Any:
    """Weights of ordinary least squares. The intercept is left out, since it does not affect the ranking."""
    import numpy as np

    return np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]


def train_linear(train: tuple[Any, Any, Any], vali: tuple[Any, Any, Any]) -> Any:
    """Weights that maximize the expected NDCG, starting from least squares.

    L-BFGS with sigma halved repeatedly from the standard deviation of the scores, and a penalty on the
    distance from the start. The penalty and the iteration with the best validation NDCG@10 are chosen.
    """
    from scipy.optimize import minimize

    import sinkprop

    X, y, qid = train
    scale = X.std(axis=0)
    scale[scale == 0] = 1
    Z, start = X / scale, least_squares(X, y) * scale
    spread, size = (Z @ start).std(), start @ start

    def loss(w: Any, sigma: float, penalty: float) -> tuple[float, Any]:
        gain = sinkprop.expected_gain(
            Z @ w, y, qid, gain="ndcg", relaxation=sinkprop.SmoothedIndicator(sigma=sigma)
        )
        away = w - start
        value = penalty * (away @ away) / size - gain.value
        return value, 2 * penalty * away / size - Z.T @ gain.gradient

    best, best_weights = ndcg(vali[1], vali[0] @ (start / scale), vali[2]).mean(), start
    for penalty in (1e-4, 1e-3, 1e-2, 1e-1):
        w = start
        for halvings in range(5):
            arguments = (spread / 2**halvings, penalty)
            for _ in range(3):
                w = minimize(loss, w, arguments, jac=True, method="L-BFGS-B", options={"maxiter": 10}).x
                value = ndcg(vali[1], vali[0] @ (w / scale), vali[2]).mean()
                if value > best:
                    best, best_weights = value, w
    return best_weights / scale


def train_lightgbm(train: tuple[Any, Any, Any], vali: tuple[Any, Any, Any]) -> Any:
    """LightGBM's lambdarank with early stopping on validation NDCG@10."""
    import lightgbm
    import numpy as np

    def data(part: tuple[Any, Any, Any]) -> Any:
        return lightgbm.Dataset(part[0], part[1], group=group_sizes(part[2]))

    def group_sizes(qids: Any) -> Any:
        changes = np.flatnonzero(np.diff(qids)) + 1
        return np.diff([0, *changes, len(qids)])

    parameters = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "learning_rate": 0.05,
        "num_leaves": 15,
        "min_data_in_leaf": 20,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "feature_fraction": 0.5,
        "seed": 0,
        "deterministic": True,
        "num_threads": 1,
        "verbose": -1,
    }
    stop = lightgbm.early_stopping(50, verbose=False)
    return lightgbm.train(parameters, data(train), 500, valid_sets=[data(vali)], callbacks=[stop])


def p_value(difference: Any) -> float:
    """Two-sided p-value of a paired randomization test with 100,000 random signs."""
    import numpy as np

    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], size=(100_000, len(difference)))
    extreme = np.abs(signs @ difference) >= abs(difference.sum()) - 1e-12
    return float((extreme.sum() + 1) / (len(extreme) + 1))


def check(folder: Path) -> None:
    """Print the size of the data and the test NDCG@10 of several rankers, fold by fold."""
    import numpy as np

    names = [line.split("\t")[1] for line in (folder / "features.tsv").read_text().splitlines()[1:]]
    parts = [read_part(folder / f"S{i}.txt.xz") for i in range(1, N_PARTS + 1)]
    X, y, qid = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sizes = np.unique(qid, return_counts=True)[1]
    print(
        f"{len(sizes)} queries of {sizes.min()} to {sizes.max()} rows, {len(y)} rows, {len(names)} features"
    )
    for grade in (0, 1, 2):
        rows = X[y == grade]
        unseen = (rows[:, names.index("whole_coverage")] == 0).mean()
        print(f"grade {grade}: {len(rows)} rows, {unseen:.1%} of them without a word of the query")

    single = ("name_bm25", "summary_bm25", "body_bm25", "whole_bm25", "whole_lm_dir")
    trees = importlib.util.find_spec("lightgbm") is not None
    results: dict[str, list[Any]] = {}
    for fold in range(N_PARTS):
        rotated = [parts[(fold + i) % N_PARTS] for i in range(N_PARTS)]
        train = tuple(np.concatenate(arrays) for arrays in zip(*rotated[:3], strict=True))
        vali, (X, y, qid) = rotated[3], rotated[4]
        scores = {name: X[:, names.index(name)] for name in single}
        scores["least squares"] = X @ least_squares(*train[:2])
        scores["linear, expected NDCG"] = X @ train_linear(train, vali)
        if trees:
            scores["LightGBM lambdarank"] = train_lightgbm(train, vali).predict(X)
        for name, values in scores.items():
            results.setdefault(name, []).append(ndcg(y, values, qid))

    reference = np.concatenate(results["least squares"])
    print(f"\n{'NDCG@10':<22} fold 1 fold 2 fold 3 fold 4 fold 5   mean  minus LS       p")
    for name, folds in results.items():
        means = [values.mean() for values in folds]
        row = f"{name:<22}" + "".join(f" {mean:6.4f}" for mean in means) + f" {np.mean(means):6.4f}"
        difference = np.concatenate(folds) - reference
        if difference.any():
            row += f"   {difference.mean():+.4f} {p_value(difference):.5f}"
        print(row)
    if not trees:
        print("LightGBM is not installed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "check"):
        commands.add_parser(name).add_argument(
            "folder", type=Path, nargs="?", default=FOLDER, help="folder of the data set"
        )
    command = commands.add_parser("show")
    command.add_argument("words", nargs="*", help="show only queries that contain all these words")
    command.add_argument("--top", type=int, default=14, help="number of documents per query  [default: 14]")
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder)
    elif options.command == "check":
        check(options.folder)
    else:
        show(options.words, options.top)


if __name__ == "__main__":
    main()
