"""Flights out of New York City: their number and mean delay, per carrier and hour.

    headrace demo                                             # makes ./headrace-demo, with the stream `flights` in it
    cd headrace-demo
    headrace run flight_delays.py --until caught-up           # this file: the records that came to `flights` since then

From elsewhere: headrace run flight_delays.py --until caught-up --set system=log:./headrace-demo/data
"""

import headrace as hr

app = hr.App("flight-delays", system="log:./data")

# Keyed by tail number; the timestamp of a record is the scheduled departure.
flights = app.stream("flights", key=hr.String(), value=hr.Json("carrier string, origin string, dep_delay double"))

delays = (
    flights
    .filter("value.dep_delay is not null")  # a Spark SQL expression: a cancelled flight has no delay
    .select_key("value.carrier")
    .repartition(hr.Repartitioned(name="by-carrier", number_of_partitions=4))  # a stream in between: a carrier, a task
    .group_by_key()
    .windowed_by(hr.Tumbling("1 hour"))
    .aggregate(flights=hr.count(), mean_delay=hr.mean("value.dep_delay"), store="delays")
)
delays.to_stream().to("delays-by-carrier", value=hr.Json())

if __name__ == "__main__":
    app.run()  # until it is stopped; app.run(until="caught-up") stops at the end of the input
