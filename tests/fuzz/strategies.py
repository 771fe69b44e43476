"""Corpora, datasets, thresholds and flags, drawn so that they meet: queries find, names resolve."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from pytest_taguru.engine.metrics import CASE_METRICS, CATALOGUE
from tests.support.live import RERANK_MODEL

#: Reserved in URLs, in JSON, in shells, in our own messages and node ids.
RESERVED = ":/?#[]@!$&'()*+,;=%\\\"<>^`{|}~-_. "
#: Folded by lower case, NFKC or kana; blank to some programs and not to others.
FOLDED = "ぁァﾊﾞがガヴゖヶヷーＡａ１ﬁßẞİıΣσςÅÅⅧ㌔🄰①é̈ﷺ々〇"
BLANKISH = "\t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u200b\u2028\u2029\u3000\ufeff\u2060"
OTHER = "\x01\x7f\x9f\ufffd\ufffe\U0001f600\U0010ffff\u0301\u202e"
#: Words that texts, names, cues and queries share.
WORDS = (
    *("water", "WATER", "brewery", "orchard", "grape", "rice", "oﬃce", "ΟΔΥΣΣΕΥΣ", "straße"),
    *("ぶどう", "ブドウ", "果樹園", "青嶺の仕込み水", "霧沢川", "ﾌﾞﾄﾞｳ", "ＷＡＴＥＲ", "İstanbul"),
    *("a/b", "c:d", "%2F", "e?f=g&h#i", "j\\k", '"quoted"', "'", "<l>", "m\0n", "..", "🄰 mark"),
)
DATES = (0, 1, 1_700_000_000, 2**31, 2**53 + 1, 2**63, 2**64 - 1)
WEIGHTS = (-1e6, -1.0, -0.25, -0.0, 0.0, 1e-9, 0.5, 1.0, 3.7, 1e6)
PARAGRAPHS = (0, 1, 2, 3, 7, 2**31, 2**32 - 1)
LIMITS = (1, 2, 3, 5, 10, 199, 200, 201, 999, 1000)
FLOORS = (0, 0.0, -0.0, 0.2, 1 / 3, 0.5, 0.9999999, 1, 1.0, 1.00000001, 1e-46, 1e-7)
CEILINGS = (1, 2, 3, 5, 40, 150, 350, 700, 1500, 1001, 65536, 1048577, 2**32, 2**63, 2**64 - 1)

characters = st.sampled_from(RESERVED + FOLDED + BLANKISH + OTHER + "\0abc012")
words = st.sampled_from(WORDS)
strange = st.text(characters, min_size=1, max_size=12)
#: Names as the server takes them: not empty.
names = st.one_of(words, strange, st.builds("{}{}".format, words, strange))


def maybe(strategy: st.SearchStrategy[Any], absent: Any = None) -> st.SearchStrategy[Any]:
    """Half of the time nothing."""
    return st.one_of(st.just(absent), strategy)


def is_blank(text: str) -> bool:
    """Blank as Unicode has it; to Python the separators U+001C to U+001F are white space too."""
    return all(one.isspace() and not "\x1c" <= one <= "\x1f" for one in text)


# -- corpora ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is written to a context. The server may refuse a part; both programs see the rest."""

    name: str
    passages: dict[str, str]
    extras: dict[str, dict[str, Any]]
    associations: list[dict[str, Any]]
    aliases: dict[str, dict[str, str]]
    concepts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


texts = st.one_of(
    st.lists(words, min_size=1, max_size=8).map(" ".join),
    st.lists(words, min_size=1, max_size=30).map("、".join),
    st.sampled_from(["", "water", "water", "ぶどうの果樹園", "x" * 20_000, "水 water " * 3_000]),
    strange,
)
passages = st.lists(texts, min_size=1, max_size=4).map("\n\n".join)
#: At most 58 bytes: the server takes 64, and a number is appended. No argument holds a NUL, and
#: the original drops tabs and line ends from the name (see test_found.py).
context_names = st.text(characters.filter(lambda c: c not in "\0\t\n\r"), max_size=12).map(
    lambda text: text.encode()[:58].decode(errors="ignore")
)


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """A context."""
    sources = draw(st.lists(names, max_size=6, unique=True))
    concepts = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    labels = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    chosen = st.sampled_from([*sources, "nowhere.md"])
    associations = st.fixed_dictionaries(
        {
            "subject": st.sampled_from(concepts),
            "label": st.sampled_from(labels),
            "object": st.sampled_from(concepts),
            "weight": st.sampled_from(WEIGHTS),
        },
        optional={"source": chosen, "paragraph": st.sampled_from(PARAGRAPHS)},
    )
    sections = st.fixed_dictionaries({"paragraph": st.integers(0, 4), "section": names})
    questions = st.fixed_dictionaries({"paragraph": st.integers(0, 4), "question": names})
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "tags": st.lists(names, max_size=3),
        "dates": st.sampled_from(DATES),
        "sections": st.lists(sections, max_size=3),
        "questions": st.lists(questions, max_size=2),
    }
    extras = {
        kind: draw(st.dictionaries(st.sampled_from(sources), values, max_size=3)) if sources else {}
        for kind, values in kinds.items()
    }
    return Corpus(
        name=draw(context_names),
        passages={source: draw(passages) for source in sources},
        extras=extras,
        associations=draw(st.lists(associations, max_size=6)),
        aliases={
            "concepts": draw(st.dictionaries(names, st.sampled_from(concepts), max_size=2)),
            "labels": draw(st.dictionaries(names, st.sampled_from(labels), max_size=2)),
        },
        concepts=concepts,
        labels=labels,
    )


# -- datasets --------------------------------------------------------------------------------


def _some(strategy: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most)


@st.composite
def cases(draw: st.DrawFn, corpus: Corpus, case_id: str) -> dict[str, Any]:
    """A case that both programs accept, most of it about things that the corpus holds."""
    other = draw(st.lists(names, min_size=1, max_size=2))
    concepts = [*corpus.concepts * 2, *corpus.aliases["concepts"], *other]
    labels = [*corpus.labels * 2, *corpus.aliases["labels"], *other]
    sources = [source for source in corpus.passages if not is_blank(source)]
    tags = [tag for declared in corpus.extras["tags"].values() for tag in declared]
    concept, label, source = (
        st.sampled_from([name for name in known if not is_blank(name)] or ["x"])
        for known in (concepts, labels, [*sources * 3, *other])
    )
    wanted = {
        "cues": _some(st.sampled_from([*concepts * 2, *labels, "", " "]), 3),
        "expected_concepts": _some(st.sampled_from([*concepts, "", " "]), 3),
        "expected_labels": _some(label, 2),
        "expected_associations": _some(
            st.sampled_from(
                [
                    *(
                        {place: one[place] for place in ("subject", "label", "object")}
                        for one in corpus.associations
                        if not any(is_blank(one[place]) for place in ("subject", "label", "object"))
                    ),
                    {"subject": draw(concept), "label": draw(label), "object": draw(concept)},
                ]
            ),
            2,
        ),
        "expected_citations": st.lists(
            st.one_of(
                st.sampled_from(sources).flatmap(lambda one: _citations(corpus, one)),
                st.fixed_dictionaries(
                    {"source": source, "paragraph": st.sampled_from(PARAGRAPHS)},
                    optional={"section": maybe(names), "quote": st.none()},
                ),
            )
            if sources
            else st.fixed_dictionaries(
                {"source": source, "paragraph": st.sampled_from(PARAGRAPHS)}
            ),
            max_size=3,
        ),
        "options": st.fixed_dictionaries(
            {},
            optional={
                "limit": maybe(st.sampled_from(LIMITS)),
                "floor": maybe(st.sampled_from(FLOORS)),
                "tags": maybe(_some(st.sampled_from([*tags * 2, "no such tag", ""]), 2)),
                "since": maybe(st.sampled_from(DATES)),
                "until": maybe(st.sampled_from(DATES)),
            },
        ),
    }
    if sources:
        wanted["expected_sources"] = _some(
            st.fixed_dictionaries(
                {"source": st.sampled_from(sources)},
                optional={
                    "paragraphs": _some(st.sampled_from([0, 0, 0, *PARAGRAPHS]), 3),
                    "relevance": st.integers(0, 3),
                },
            ),
            3,
        )
    nothing = {"expected_labels", "expected_associations", "expected_citations"}
    case: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=wanted))
    for name in sorted(nothing & case.keys()):
        if not case[name] and draw(st.booleans()):
            case[name] = None
    query = st.one_of(st.lists(words, min_size=1, max_size=4).map(" ".join), concept)
    return {"case_id": case_id, "query": draw(query), **case}


@st.composite
def _citations(draw: st.DrawFn, corpus: Corpus, source: str) -> dict[str, Any]:
    """A citation of a paragraph that may be there, with a quote and a section that may be right."""
    paragraphs = [text for text in corpus.passages[source].split("\n\n") if not is_blank(text)]
    number = draw(st.integers(0, len(paragraphs)))
    text = paragraphs[number] if number < len(paragraphs) else "beyond"
    start = draw(st.integers(0, min(len(text), 30)))
    part = text[start : start + draw(st.integers(1, 12))]
    quotes = [one for one in (part, part.upper(), part.lower(), f"\u3000{part}\n", "no") if one]
    declared = [entry["section"] for entry in corpus.extras["sections"].get(source, ())]
    optional = {
        "section": st.sampled_from([None, "", *declared]),
        "quote": st.sampled_from([one for one in quotes if not is_blank(one)]),
    }
    fixed = {"source": st.just(source), "paragraph": st.just(number)}
    return draw(st.fixed_dictionaries(fixed, optional=optional))


@st.composite
def datasets(draw: st.DrawFn, corpus: Corpus) -> list[dict[str, Any]]:
    """A header and some cases."""
    visible = strange.filter(lambda text: not is_blank(text))
    ids = draw(st.lists(visible, min_size=1, max_size=3, unique=True))
    header = draw(
        st.fixed_dictionaries(
            {"taguru_eval": st.just(1)},
            optional={"name": maybe(names), "default_target": st.sampled_from([None, {}, [1]])},
        )
    )
    return [header, *(draw(cases(corpus, case_id)) for case_id in ids)]


@st.composite
def layouts(draw: st.DrawFn, lines: list[dict[str, Any]]) -> bytes:
    """Some way to write a dataset down."""
    escaped = draw(st.booleans())
    ending = draw(st.sampled_from(["\n", "\r\n", " \n\n", "\xa0\n\u2028\n", "\u3000\x85\n"]))
    text = "".join(json.dumps(line, ensure_ascii=escaped) + ending for line in lines)
    return (text if draw(st.booleans()) else text.rstrip("\n")).encode()


# -- thresholds and flags --------------------------------------------------------------------

bounds = st.one_of(
    st.fixed_dictionaries({"min": st.sampled_from([0, 0.25, 0.5, 0.75, 1, -1e308, 1e308])}),
    st.fixed_dictionaries({"max": st.sampled_from([0, 0.25, 0.5, 0.75, 1, 2, 1e6])}),
    st.just({"min": 0.125, "max": 0.875}),
    st.just({"min": 0, "max": None}),
)
#: Latencies differ from run to run: only bounds that hold, or that fail for want of samples.
_aggregates = st.sampled_from(sorted(name for name in CATALOGUE if "latency" not in name))
_of_cases = st.sampled_from(sorted(name for name in CASE_METRICS if "latency" not in name))


@st.composite
def thresholds(draw: st.DrawFn, ids: list[str]) -> dict[str, Any]:
    """A thresholds file for cases with these ids."""
    some = st.dictionaries(_of_cases, bounds, max_size=3)
    overrides = st.dictionaries(st.sampled_from(ids), some, max_size=2)
    of_cases = st.fixed_dictionaries({}, optional={"default": some, "overrides": overrides})
    return draw(
        st.fixed_dictionaries(
            {"taguru_evaluate_thresholds": st.just(1)},
            optional={
                "aggregate": st.dictionaries(_aggregates, bounds, max_size=5),
                "cases": of_cases,
                "allow_unstable_corpus": st.booleans(),
            },
        )
    )


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of a run, but for those that name files and the server."""

    assembly: bool = False
    max_items: int | None = None
    max_bytes: int | None = None
    max_tokens: int | None = None
    rerank: str | None = None

    @property
    def words(self) -> list[str]:
        """As the original program takes them."""
        found = ["--assembly"] if self.assembly else []
        for name in ("max_items", "max_bytes", "max_tokens", "rerank"):
            value = getattr(self, name)
            if value is not None:
                found += [f"--{name.replace('_', '-')}", str(value)]
        return found


_ceiling = maybe(st.sampled_from(CEILINGS))
flags = st.one_of(
    st.builds(Flags),
    st.builds(Flags, max_items=_ceiling, max_bytes=_ceiling, max_tokens=_ceiling),
    st.builds(
        Flags,
        assembly=st.just(True),
        max_items=_ceiling,
        max_bytes=_ceiling,
        max_tokens=_ceiling,
        rerank=st.sampled_from([None, RERANK_MODEL, "another", "モデル/№1"]),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Example:
    """Everything that one comparison needs."""

    corpus: Corpus
    dataset: bytes
    thresholds: dict[str, Any] | None
    flags: Flags
    width: int


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """A corpus, questions about it, and how they are asked."""
    corpus = draw(corpora())
    lines = draw(datasets(corpus))
    return Example(
        corpus=corpus,
        dataset=draw(layouts(lines)),
        thresholds=draw(maybe(thresholds([line["case_id"] for line in lines[1:]]))),
        flags=draw(flags),
        width=draw(st.sampled_from([1, 2, 8])),
    )
