"""A job that gets more partitions and more tasks while it runs, with its state.

    python rescale.py                                         # makes its streams in ./data, and changes the job as it runs

The same by hand: `headrace stream expand orders --partitions 4` and `headrace elasticity set 2 rescale.py`.
"""

import time

import headrace as hr

app = hr.App("orders-per-customer", system="log:./data", partition_check_interval_s=0.5)
orders = app.stream("orders", key=hr.String(), value=hr.Long())
orders.group_by_key().count(store="per-customer")

CUSTOMERS = [f"customer-{number}" for number in range(20)]


def wait_for(what, seconds=60.0):
    """Wait until something is so; the jobs of this example need a second or two."""
    end_s = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end_s:
            raise TimeoutError("not within a minute: is the job still running?")
        time.sleep(0.1)


def source(job):
    return job.status()["sub_topologies"]["source"]


if __name__ == "__main__":
    with hr.open_system("log:./data") as log:
        if "orders" not in [stream.name for stream in log.streams()]:
            log.create_stream("orders", partitions=2)
        job = app.start()
        try:
            for step in range(3):
                log.produce("orders", [(customer, 1) for customer in CUSTOMERS], key=hr.String(), value=hr.Long())
                wait_for(lambda sent=20 * (step + 1): source(job)["lag"] == 0 and source(job)["records"] >= sent)
                status = job.status()
                print(f"job model {status['job_model']}: {source(job)['tasks']} tasks")
                if step == 0:
                    log.expand_stream("orders", 4)  # keys keep their tasks: each reads two partitions now
                    wait_for(lambda: job.status()["job_model"] == 2)
                elif step == 1:
                    job.set_elasticity(2)  # each task becomes two, with half of the keys each
                    wait_for(lambda: source(job)["elasticity_factor"] == 2)
        finally:
            job.stop()
    counts = {customer: app.state("per-customer").get(customer) or 0 for customer in CUSTOMERS}
    print("orders of each customer:", sorted(set(counts.values())))
