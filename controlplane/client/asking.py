"""``modelless.Client``: a task in, a typed reply or error out.

``asking_async`` has the same for event loops.
"""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from controlplane.client.binary import (
    Signature,
    Signatures,
    arrays_in,
    as_arrays,
    binary_content,
    infer_path,
    is_large,
    metadata_path,
    read_answer,
)
from controlplane.client.exchange import (
    EXPLAIN_PATH,
    FEEDBACK_PATH,
    HEADERS,
    IDLE_S,
    PATH,
    TIMEOUT_S,
    Reply,
    asked_about,
    asked_about_rows,
    checked,
    connection_options,
    feedback_content,
    in_trace,
    left_unanswered,
    named_url,
    query_content,
    read_document,
    read_reply,
    typed_failures,
    waits_s,
)
from controlplane.client.exporting.exported import Exported
from controlplane.client.pictures import Picture, check_about, comma_separated, picture_query
from controlplane.client.registering import File, Told, form_of, register_there
from variants.types import Prefer

if TYPE_CHECKING:
    import httpx


class Client:
    """Talks to one gateway over connections that it keeps. Threads may share it, and a process that
    is forked goes on with connections of its own.

    ::

        with modelless.Client() as client:
            reply = client.query("digits", rows, latency_ms=50, accuracy=0.97)
            print(reply.labels, reply.variant)
            print(client.query("digits", image="three.png").labels)

    A query is sent once. An error says whether another attempt is worth it (``retryable``), and
    when (``retry_after_s``), where the gateway knows, and which request it was (``request_id``).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        certificate: str | PathLike[str] = "",
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        """Without ``url`` it asks what ``MODELLESS_URL`` names, else ``http://127.0.0.1:8000``;
        without ``token`` it sends ``MODELLESS_API_TOKEN``, if there is one, and none for ``""``.

        ``timeout_s`` is how long to wait for a reply beyond the deadline that a query names;
        the gateway itself answers before. ``certificate`` is a PEM file to trust besides the public
        authorities: a private authority's, or the gateway's own.

        Raises:
            InvalidInput: ``url`` is none, no header can carry the token, or the certificate cannot
                be read.
        """
        import httpx

        self.url = named_url(url)
        self.timeout_s = timeout_s
        options = connection_options(self.url, token, certificate)
        self._signatures = Signatures()
        limits = httpx.Limits(keepalive_expiry=IDLE_S)  # one for each thread that asks
        self._connected = partial(httpx.Client, transport=transport, limits=limits, **options)
        self._process = os.getpid()
        self._own = self._connected()
        self._inherited: list[httpx.Client] = []

    @property
    def _http(self) -> "httpx.Client":
        """The connections of this process. One that was forked has those of its parent as well, and
        an answer to either of them would come to whoever reads first."""
        if self._process != os.getpid():
            self._inherited.append(self._own)  # not closed: the parent may be asking
            self._process, self._own = os.getpid(), self._connected()
        return self._own

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def query(
        self,
        task: str,
        inputs: Any = None,
        *,
        image: Picture = None,
        image_mean: float | Iterable[float] | None = None,
        image_std: float | Iterable[float] | None = None,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        best_effort: bool = False,
        variant: str | None = None,
        model_version: str | None = None,
        priority: int | None = None,
        truncate: bool = False,
        arrays: bool = False,
    ) -> Reply:
        """Ask for a task. What is not said is the task's default.

        ``inputs`` are rows: nested lists or an array, ``(rows, ...)``; for a task with several
        inputs a dictionary of them by name. Arrays of 32 KiB and more are sent as they lie in
        memory. With ``arrays`` the outputs of the reply are arrays as well, not lists. Where the
        task takes texts they may be that, or pairs of them; those with too many tokens are
        refused, or with ``truncate`` cut off.

        Or ``image`` is a picture, where the task takes any: a path, the bytes of a PNG or JPEG, or
        an image of Pillow. It becomes numbers as the task says (``modelless tasks get``), unless
        ``image_mean`` and ``image_std`` say otherwise: ``(value / 255 - mean) / std``.

        ``latency_ms`` is the deadline, ``accuracy`` the floor in [0, 1], ``cost`` the ceiling in
        USD per 1,000 queries, ``prefer`` what to optimise among the variants that fit: ``cost``,
        ``accuracy``, ``latency`` or ``energy``. With ``best_effort`` the nearest variant answers
        where none fits, and the reply says ``slo_met=False``. ``variant`` asks that one and no
        other, ``model_version`` (``encoder-v1``) any variant of that version: vectors of one
        version cannot be compared with those of another. ``priority`` says who is refused first
        where not all can be served: 1 is the highest, 100 what a query has that names none, and
        65,535 the lowest.

        Raises:
            InvalidInput: the gateway cannot read it as a query of this task.
            TaskNotFound: there is no such task.
            SloInfeasible: no variant can ever meet it; ``alternatives`` come closest.
            Overloaded, Cold, NoWorkers, RateLimited: not now.
            DeadlineExceeded: no answer came in time.
            ReplicaLost: what was to answer is gone.
            Unreachable: no gateway listens there.
            ModellessError: another error of the gateway, by its code.
        """
        needs = checked(
            {
                "latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer,
                "best_effort": best_effort, "model_version": model_version, "priority": priority,
            }
        )  # fmt: skip
        timeout_s = waits_s(self.timeout_s, needs)
        check_about(inputs, image, image_mean, image_std)
        if image is not None:
            sent = picture_query(
                task, image, needs, variant=variant, mean=image_mean, std=image_std
            )
            reply = read_reply(self._post(*sent, timeout_s), self.url)
            return as_arrays(reply) if arrays else reply
        given = None if truncate else arrays_in(inputs, lists=arrays)
        if given is not None and (arrays or is_large(given)):
            signature = self._signatures.of(task) or self._signature(task)
            made = binary_content(signature, given, arrays=arrays, **needs)
            if made is not None:
                response = self._post(infer_path(task, variant), *made, timeout_s)
                document = read_document(response, self.url)
                return read_answer(response, document, signature, self.url)
        about = asked_about(inputs, truncate=truncate)
        content = query_content(task, about, variant=variant, **needs)
        reply = read_reply(self._post(PATH, content, HEADERS, timeout_s), self.url)
        return as_arrays(reply) if arrays else reply

    def _signature(self, task: str) -> Signature:
        with typed_failures(self.url, self.timeout_s):
            response = self._http.get(metadata_path(task), timeout=self.timeout_s)
        return self._signatures.keep(task, read_document(response, self.url))

    def _post(
        self, path: str, content: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> "httpx.Response":
        """Ask a query; once more where a kept connection was closed as it was asked."""
        sent: dict[str, Any] = {
            "content": content, "headers": in_trace(headers), "timeout": timeout_s
        }  # fmt: skip
        with typed_failures(self.url, timeout_s):
            try:
                return self._http.post(path, **sent)
            except Exception as error:
                if not left_unanswered(error):
                    raise
            return self._http.post(path, **sent)

    def explain(
        self,
        task: str,
        *,
        rows: int = 1,
        length: int | None = None,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        best_effort: bool = False,
        variant: str | None = None,
        model_version: str | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """What would become of such a query now, and why; nothing is run, and it is no demand.

        ``length`` is that of its longest row, for a task whose rows differ in length; without it
        they are as long as the task takes them.

        Returns:
            What ``POST /v1/explain`` answers: ``outcome``, which is ``answered`` or ``refused``,
            ``answer`` or ``refusal``, ``plan`` in a sentence, and under ``variants`` for each a
            ``verdict`` and ``why``.

        Raises:
            InvalidInput, TaskNotFound, RateLimited, Unreachable: as ``query``. What a query would
                be refused for is part of the explanation and raises nothing.
        """
        content = query_content(
            task, asked_about_rows(rows, length), latency_ms=latency_ms, accuracy=accuracy,
            cost=cost, prefer=prefer, best_effort=best_effort, variant=variant,
            model_version=model_version, priority=priority,
        )  # fmt: skip
        with typed_failures(self.url, self.timeout_s):
            response = self._http.post(
                EXPLAIN_PATH, content=content, headers=HEADERS, timeout=self.timeout_s
            )
        return read_document(response, self.url)

    def feedback(
        self, answer: Reply | str, labels: str | int | Iterable[str | int]
    ) -> dict[str, Any]:
        """Say which classes were right, of an answer of the last minutes.

        ``answer`` is the reply, or the ``X-Request-Id`` that it carried; ``labels`` has the right
        class of each row, and a single row's may stand alone.

        Returns:
            ``task``, ``variant``, how many rows were ``right`` and ``wrong``, and ``anew``: False
            where the same was said before, which counts once.

        Raises:
            NotFound: the gateway does not know the answer, or not any more.
            InvalidInput: the labels do not fit the answer, or its task has no classes.
            Conflict: something else was said of it before.
        """
        content = feedback_content(answer, labels)
        with typed_failures(self.url, self.timeout_s):
            response = self._http.post(
                FEEDBACK_PATH, content=content, headers=HEADERS, timeout=self.timeout_s
            )
        return read_document(response, self.url)

    def register(
        self,
        model: File | Exported,
        *,
        task: str,
        evaluation: File,
        name: str | None = None,
        calibration: File | None = None,
        training: File | None = None,
        labels: Iterable[str] | str | None = None,
        metric: str | None = None,
        lengths: Iterable[int] | str | None = None,
        pad: float | str | None = None,
        tokenizer: File | None = None,
        text_inputs: str | None = None,
        stage: str | None = None,
        variants: Iterable[str] | str | None = None,
        measure: str | None = None,
        fresh: bool = False,
        quick: bool = False,
        input_names: Iterable[str] | str | None = None,
        output_names: Iterable[str] | str | None = None,
        keep_outputs: Iterable[str] | str | None = None,
        axis_sizes: Mapping[str, int] | str | None = None,
        fix_inputs: Mapping[str, float] | str | None = None,
        batch_axes: Mapping[str, int] | str | None = None,
        free_batch: bool = False,
        cast_float16: bool = False,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        image_mean: float | Iterable[float] | str | None = None,
        image_std: float | Iterable[float] | str | None = None,
        told: Told = lambda _: None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Hand a model to the gateway, which checks, builds and measures it, and wait for that.

        ::

            exported = modelless.export(pipeline, rows, "churn.onnx")
            client.register(exported, task="churn", evaluation="held_out.npz")

        ``model`` is an ``.onnx`` or ``.pt2`` file, or what ``export`` gave, with its labels.
        ``evaluation`` and the other files are ``.npz`` files of rows; with a ``tokenizer``, the
        ``tokenizer.json`` of the model, also tables of texts (``.csv``, ``.jsonl``). The rest is
        what the options of ``modelless register`` are, as values or as their texts, and ``name``
        the model's, else that of the file. What was built and measured there of the same before is
        taken from the build cache, unless all is to be done ``fresh``. ``quick`` judges by few rows
        and measures little. ``told`` is called with ``step``, ``done``, ``total`` and ``message``
        as it goes on, and with the ``operation`` that DELETE ``/v1/operations/{operation}`` ends.
        After ``timeout_s``, if that is given, it is not waited for any more; it goes on there.

        Returns:
            ``task``, ``versions``, ``variants`` with their profiles, ``skipped`` with reasons,
            ``doubts``, and others, as ``modelless register --output json`` prints them.

        Raises:
            InvalidInput, InvalidArtifact, Conflict: why nothing was registered.
            PayloadTooLarge: the gateway takes no such large files.
            RateLimited: too many register there now.
            DeadlineExceeded: it takes longer than ``timeout_s``.
            Unreachable: no gateway listens there.
            ModellessError: another error of the gateway, by its code.
        """
        fields, files = form_of(
            model, task=task, name=name, labels=labels,
            files={
                "evaluation": evaluation, "calibration": calibration, "training": training,
                "tokenizer": tokenizer,
            },
            variants=variants, metric=metric, lengths=lengths, pad=pad, text_inputs=text_inputs,
            latency_ms=latency_ms, accuracy=accuracy, cost=cost, prefer=prefer, stage=stage,
            image_mean=comma_separated(image_mean), image_std=comma_separated(image_std),
            measure=measure, fresh=fresh, quick=quick, input_names=input_names,
            output_names=output_names, keep_outputs=keep_outputs, axis_sizes=axis_sizes,
            fix_inputs=fix_inputs, batch_axes=batch_axes, free_batch=free_batch,
            cast_float16=cast_float16,
        )  # fmt: skip
        return register_there(self._http, self.url, fields, files, told, timeout_s)
