"""Sensors that have not been heard of for a while: a Processor with a store and a timer for each key.

    python silent_sensors.py                                  # makes its streams in ./data, and processes what is there

Timers are of event time: they fire as the records of the others move time on. With `clock="wall"` they would go by the clock.
"""

import headrace as hr


class Watch(hr.Processor[str, float, str, str]):
    """Says once when a sensor is silent for 10 minutes, and once when it is back."""

    stores = [hr.KeyValueStore("silent", value=hr.Long())]

    def init(self, context):
        self.context = context

    def process(self, record):
        if self.context.store("silent").get():
            self.context.forward(value="back")
            self.context.store("silent").delete()
        self.context.timer("silent", after="10 minutes")  # in place of the one that this sensor had

    def on_timer(self, timer):
        self.context.store("silent").put(1)
        self.context.forward(value="silent")


app = hr.App("silent-sensors", system="log:./data")
measured = app.stream("measured", key=hr.String(), value=hr.Double())
measured.process(Watch, name="watch", value=hr.String()).to("said")

MINUTE_US = 60_000_000
# What a round reads moves time on for the rounds that follow: timers fire by the time that was before.
PARTS = (
    [hr.Record("roof", 20.5, 0), hr.Record("cellar", 12.0, 0), hr.Record("cellar", 12.1, 11 * MINUTE_US)],
    [hr.Record("cellar", 12.2, 12 * MINUTE_US)],
    [hr.Record("roof", 21.0, 13 * MINUTE_US)],
)

if __name__ == "__main__":
    with hr.open_system("log:./data") as log:
        if "measured" not in [stream.name for stream in log.streams()]:
            log.create_stream("measured", partitions=1)
    for part in PARTS:
        with hr.open_system("log:./data") as log:
            log.produce("measured", part, key=hr.String(), value=hr.Double())
        app.run(until="caught-up")

    with hr.open_system("log:./data") as log:
        for record in log.consume("said", key=hr.String(), value=hr.String()):
            print(record.key, record.value)
