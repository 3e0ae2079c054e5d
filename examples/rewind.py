"""A mistake in the data is undone: the job goes back to before it, with its state, and reads what follows once more.

    python rewind.py                                          # makes its streams in ./data, sells, and goes back

The same by hand: `headrace startpoint set sales rewind.py --offset 3 --state rewind`, which shows its effect first.
"""

import headrace as hr

app = hr.App("shop", system="log:./data", state_version_interval_s=0)  # each run keeps a version of the state
sales = app.stream("sales", key=hr.String(), value=hr.Long())
sales.group_by_key().aggregate(
    initial=0, function=lambda sold, record: sold + record.value, value=hr.Long(), store="sold"
)


def sell(*amounts):
    with hr.open_system("log:./data") as log:
        if "sales" not in [stream.name for stream in log.streams()]:
            log.create_stream("sales", partitions=1)
        log.produce("sales", [("tea", amount) for amount in amounts], key=hr.String(), value=hr.Long())
    app.run(until="caught-up")


if __name__ == "__main__":
    sell(1, 2, 3)
    sell(4)
    print("sold:", app.state("sold").get("tea"))

    with hr.startpoints(app) as startpoints:
        preview = startpoints.preview("sales", 3, state="rewind")
        for move in preview.moves:
            print(f"reads again: {move.read_again} of {move.ssp.stream}")
        startpoints.write(preview)
    app.run(until="caught-up")  # reads the fourth sale again, and counts it once
    print("sold:", app.state("sold").get("tea"))
