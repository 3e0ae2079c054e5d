"""Visits to a shop's pages: sessions of clicks, joined with a table of users; clicks that are no JSON become dead letters.

    python visits.py                                          # makes its streams in ./data, and processes what is there
    headrace dead-letters list visits.py                      # the click that could not be processed, and why
    headrace state get visits ann visits.py                   # her session
"""

import headrace as hr

app = hr.App("visits", system="log:./data", dead_letter_stream="bad-clicks")

clicks = app.stream("clicks", key=hr.String(), value=hr.Json("page string"))
users = app.table("users", key=hr.String(), value=hr.String())  # the newest value of each key


def with_plan(click, plan) -> dict:
    return {"page": click["page"], "plan": plan or "free"}


visits = (
    clicks
    .left_join(users, with_plan, value=hr.Json())
    .group_by_key()
    .windowed_by(hr.Session("30 minutes", grace="1 minute"))
    .aggregate(clicks=hr.count(), last_page=hr.last("value.page"), plan=hr.last("value.plan"), store="visits")
)
visits.to_stream().to("visits", value=hr.Json())

USERS = [hr.Record("ann", "gold", 0)]
CLICKS = [
    hr.Record("ann", b'{"page": "/tea"}', 60_000_000),
    hr.Record("bob", b"no JSON", 90_000_000),
    hr.Record("ann", b'{"page": "/cups"}', 120_000_000),
    hr.Record("ann", b'{"page": "/tea"}', 7_200_000_000),  # two hours later: another session
]

if __name__ == "__main__":
    with hr.open_system("log:./data") as log:
        if "clicks" not in [stream.name for stream in log.streams()]:
            for stream in ("clicks", "users"):
                log.create_stream(stream, partitions=2)
            log.create_stream("bad-clicks", partitions=1)
        log.produce("users", USERS, key=hr.String(), value=hr.String())
        log.produce("clicks", CLICKS, key=hr.String())

    app.run(until="caught-up")

    with hr.open_system("log:./data") as log:
        for record in log.consume("visits", key=hr.Windowed(hr.String()), value=hr.Json()):
            print(record.key.key, record.value)
    with hr.dead_letters(app) as letters:
        for letter in letters.list():
            print("dead letter", letter.id, letter.reason)
