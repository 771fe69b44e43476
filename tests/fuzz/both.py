"""One example through both programs: seeded, evaluated by each, and what differs."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from msgspec import UNSET

from pytest_taguru.engine.artifact import EvalInput, Head, Inputs, Tail, write_artifact
from pytest_taguru.engine.budget import limits
from pytest_taguru.engine.cases import assembly_warning
from pytest_taguru.engine.comparison import now
from pytest_taguru.engine.connections import new_session
from pytest_taguru.engine.corpus import merge_brackets
from pytest_taguru.engine.dataset import load_dataset
from pytest_taguru.engine.errors import EvaluationError
from pytest_taguru.engine.http import HttpTransport
from pytest_taguru.engine.lanes import Route
from pytest_taguru.engine.metrics import definitions
from pytest_taguru.engine.run import Run, tally
from pytest_taguru.engine.store import BlockStore, encode_block
from pytest_taguru.engine.target import check_context, find_target
from pytest_taguru.engine.thresholds import load_gate
from tests.support.artifact_diff import differences
from tests.support.runs import Workspace, plugin_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_taguru.engine.client import Transport
    from tests.support.live import LiveServer
    from tests.support.runs import Launcher

    from .strategies import Corpus, Example, Flags

VIOLATED = 3


class Arena:
    """A server on which each example has a context of its own, which goes when it is over."""

    def __init__(self, server: LiveServer, *, embeds: bool) -> None:
        self.server = server
        self._embeds = embeds
        self._numbers = count()
        self._http = requests.Session()
        self._http.trust_env = False

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @contextmanager
    def context(self, corpus: Corpus) -> Iterator[str]:
        """Seed a corpus under a name that no other example has."""
        name = f"{corpus.name}{next(self._numbers):05x}"
        home = f"/contexts/{quote(name, safe='')}"
        self._put("PUT", home, {"description": "drawn"})
        self._put("POST", f"{home}/sources", {"passages": corpus.passages})
        for kind, values in corpus.extras.items():
            for source, value in values.items():
                text = {source: corpus.passages[source]}
                self._put("POST", f"{home}/sources", {"passages": text, kind: {source: value}})
        if corpus.associations:
            self._put("POST", f"{home}/associations", corpus.associations)
        for kind, aliases in corpus.aliases.items():
            for alias, target in aliases.items():
                self._put("POST", f"{home}/aliases", {kind: {alias: target}})
        if self._embeds:
            self._put("POST", f"{home}/embeddings/refresh", None)
        try:
            yield name
        finally:
            self._put("DELETE", home, None)

    def _put(self, method: str, route: str, body: Any) -> None:
        # A refusal (an alias that is taken) is as good as any other state of the context.
        answer = self._http.request(method, self.server.url + route, json=body, timeout=60)
        assert answer.status_code < 500, f"{method} {route}: {answer.text[:400]}"


def in_process(
    directory: Path, url: str, context: str, flags: Flags, *, gated: bool, width: int = 1
) -> int:
    """Evaluate over the network with the engine alone; returns the exit status."""
    base = find_target(url, "here", {}).base
    with new_session(width) as session:
        session.trust_env = False
        transport = HttpTransport(session, base, None)
        try:
            return evaluate(directory, transport, url, context, flags, gated=gated, width=width)
        except EvaluationError as error:
            return error.status


def evaluate(
    directory: Path,
    transport: Transport,
    url: str,
    context: str,
    flags: Flags,
    *,
    gated: bool,
    width: int = 1,
) -> int:
    """What the plugin does with the engine, from eval.jsonl to evaluation.json; 0 or 3."""
    dataset = load_dataset(directory / "eval.jsonl", "eval.jsonl")
    ids = {case.case_id for case in dataset.cases}
    file = directory / "thresholds.json"
    gate = load_gate(file, "thresholds.json", ids) if gated else None
    target = find_target(url, "here", {})
    route = Route(
        context=check_context(context, "here"),
        assembly=flags.assembly,
        limits=limits(flags.max_items, flags.max_bytes, flags.max_tokens),
        rerank=flags.rerank,
    )
    with closing(BlockStore()) as store:
        run = Run(transport, base=target.base, masked=target.masked, route=route, dataset=dataset)
        numbers = range(len(dataset.cases))
        run.look_ahead(numbers, width)
        try:
            for number in numbers:
                store.put(number, encode_block(run.block(number)))
        finally:
            run.stop()
        corpus = merge_brackets([run.close()])
        rerank_asked = flags.rerank is not None
        summed = tally(store.blocks(), gate, strict=False, rerank_asked=rerank_asked)
        report = None
        if summed.judgement:
            report = summed.judgement.report(summed.metrics, stable=corpus.stable, selection=None)
        warnings = [assembly_warning(case) for case in dataset.cases] if flags.assembly else []
        count_of_cases = len(dataset.cases)
        head = Head(
            generated_at=now(),
            inputs=Inputs(
                eval=EvalInput(path="eval.jsonl", name=dataset.header.name, cases=count_of_cases),
                context=context,
                url=target.masked,
                out="evaluation.json",
                mode=route.mode,
                budget=route.budget or UNSET,
                rerank=flags.rerank or UNSET,
            ),
            corpus=corpus,
            thresholds=report,
            definitions=definitions(),
            warnings=[warning for warning in warnings if warning] or UNSET,
        )
        out = directory / "evaluation.json"
        write_artifact(out, "evaluation.json", head, store.encoded(), Tail(metrics=summed.metrics))
    return 0 if report is None or report.passed else VIOLATED


def verdict(
    arena: Arena, example: Example, launcher: Launcher | None = None
) -> tuple[int, list[str]]:
    """Both programs on one example: the status they share, and where their artifacts differ.

    With a launcher ours is a whole pytest run, else the engine alone.
    """
    gated = example.thresholds is not None
    with tempfile.TemporaryDirectory() as home, arena.context(example.corpus) as context:
        directory = Path(home)
        (directory / "eval.jsonl").write_bytes(example.dataset)
        (directory / "thresholds.json").write_text(json.dumps(example.thresholds), "utf-8")
        words = [*example.flags.words, *(["--thresholds", "thresholds.json"] if gated else [])]
        original = arena.server.evaluate(directory, context, words)
        url = arena.server.url
        if launcher is None:
            ours = in_process(
                directory, url, context, example.flags, gated=gated, width=example.width
            )
            shown = f"status {ours}"
        else:
            run = Workspace(launcher, directory).evaluate(
                url,
                *plugin_flags(words),
                f"--taguru-concurrency={example.width}",
                context=context,
            )
            ours, shown = run.status, run.shown
        assert ours == original.status, f"{original.shown}\n\n--- ours\n{shown}"
        theirs, own = directory / "original.json", directory / "evaluation.json"
        assert own.exists() == theirs.exists(), shown
        if not theirs.exists():
            return ours, []
        return ours, differences(
            _zeros(json.loads(theirs.read_bytes())), json.loads(own.read_bytes())
        )


def _zeros(artifact: Any) -> Any:
    """The original's artifact without its negative zeros, as the compatibility page promises."""
    for violation in (artifact["thresholds"] or {}).get("violations", []):
        violation["reason"] = violation["reason"].replace("-0.000000 ", "0.000000 ", 1)
    return artifact
