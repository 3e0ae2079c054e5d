"""Mistakes that mypy and pyright find. Where one of them no longer finds a mistake, it reports an unused ignore."""

from __future__ import annotations

import headrace as hr


class Counted(hr.Processor[str, int, str, int]):
    counts = hr.KeyValueStore("counts", value=hr.Long())
    times = hr.WindowStore("times", value=hr.String())
    stores = (counts, times)

    def init(self, context: hr.ProcessorContext[str]) -> None:
        self.context = context
        self.by_key = context.store(self.counts)
        self.by_time = context.store(self.times)
        context.stroe("counts")  # type: ignore[attr-defined]
        context.store(1)  # type: ignore[call-overload]
        context.timer("silent", after=10)  # type: ignore[arg-type]

    def process(self, record: hr.Record) -> None:
        self.by_key.put("three")  # type: ignore[arg-type]
        self.by_key.put(self.by_key.get() + 1)  # type: ignore[operator]
        self.by_key.range(0, 10)  # type: ignore[attr-defined]
        self.by_time.put("late")  # type: ignore[call-arg]
        self.by_time.get(0, "").append(1)  # type: ignore[attr-defined]
        record.valeu  # type: ignore[attr-defined]  # noqa: B018

    def on_timer(self, timer: hr.Timer[str]) -> None:
        timer.key + 1  # type: ignore[operator]


def names(app: hr.App) -> None:
    hr.Strign()  # type: ignore[attr-defined]
    app.stream("flights").fliter("true")  # type: ignore[attr-defined]
    app.stream("flights").count()  # type: ignore[attr-defined]
    app.global_table("airports").to_stream()  # type: ignore[attr-defined]


def serdes(app: hr.App) -> None:
    app.stream("flights", key=str)  # type: ignore[arg-type]
    app.stream("flights", value="json")  # type: ignore[arg-type]
    hr.KeyValueStore("counts", value=int)  # type: ignore[arg-type]
    hr.Long().encode("3")  # type: ignore[arg-type]
    hr.Windowed(hr.String()).encode("a")  # type: ignore[arg-type]
    texts: hr.Serde[str] = hr.Long()  # type: ignore[assignment]
    assert texts


def results(app: hr.App) -> None:
    app.run(until="caught_up")  # type: ignore[arg-type]
    app.run(progres=False)  # type: ignore[call-arg]
    app.run()["sub_topologies"]["source"]["recrods"]  # type: ignore[typeddict-item]
    app.start().stats()  # type: ignore[attr-defined]
    app.describe("yaml")  # type: ignore[call-overload]
    app.describe("dict")["nodes"]  # type: ignore[typeddict-item]
    app.describe().items()  # type: ignore[attr-defined]
    app.state("sums").get("a")["flights"]  # type: ignore[index]
    app.state("counts").to_pandas()  # type: ignore[attr-defined]
    with hr.open_system("log:./data") as log:
        log.create_stream("flights", "four")  # type: ignore[arg-type]
        log.job_store("flights")  # type: ignore[attr-defined]
