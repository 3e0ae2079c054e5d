"""docs/from-kafka-streams.md has every method of Kafka Streams' DSL, as its jar has them."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from bench.common import kafka_streams_jars

from headrace.environment import checked_java
from project.page_blocks import ROOT

PAGE = (ROOT / "docs" / "from-kafka-streams.md").read_text(encoding="utf-8")
# Operators and helpers of the DSL, and what a Processor is given. Those that have only options as others have are below.
CLASSES = (
    "StreamsBuilder", "kstream.KStream", "kstream.KTable", "kstream.KGroupedStream", "kstream.KGroupedTable",
    "kstream.CogroupedKStream", "kstream.TimeWindowedKStream", "kstream.SessionWindowedKStream", "kstream.BranchedKStream",
    "kstream.Materialized", "kstream.Consumed", "kstream.Produced", "kstream.Repartitioned", "kstream.StreamJoined",
    "kstream.TableJoined", "kstream.Suppressed", "kstream.EmitStrategy", "kstream.Branched", "kstream.JoinWindows",
    "processor.api.ProcessorContext", "state.Stores",
)  # fmt: skip
TYPES = (
    "Grouped", "Joined", "Named", "Printed", "GlobalKTable", "TimestampExtractor", "TopicNameExtractor", "StreamPartitioner",
    "Punctuator", "FixedKeyProcessor", "ValueJoinerWithKey", "DeserializationExceptionHandler", "ProductionExceptionHandler",
    "ProcessingExceptionHandler", "StreamsUncaughtExceptionHandler", "VersionedKeyQuery", "PositionBound",
)  # fmt: skip
# No row of their own: what is not for a program that declares operators, and one more serde of `StreamJoined`.
OTHERS = {"build", "equals", "hashCode", "toString", "size", "gracePeriodMs", "windowsFor", "type", "withOtherValueSerde"}
_METHODS = """
public class Methods {
    public static void main(String[] names) throws Exception {
        for (String name : names)
            for (var method : Class.forName("org.apache.kafka.streams." + name).getMethods())
                if (method.getDeclaringClass() != Object.class && !method.isBridge())
                    System.out.println(name + " " + method.getName());
    }
}
"""


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> frozenset[tuple[str, str]]:
    """(class, method) of what Kafka Streams has, as its jar says."""
    source = tmp_path_factory.mktemp("methods") / "Methods.java"
    source.write_text(_METHODS, encoding="utf-8")
    java = [str(checked_java(os.environ).path), "-XX:TieredStopAtLevel=1", "-cp", kafka_streams_jars()]
    done = subprocess.run([*java, str(source), *CLASSES], capture_output=True, text=True, check=True, timeout=60)
    return frozenset((line.split()[0], line.split()[1]) for line in done.stdout.splitlines())


def rows() -> str:
    """The tables of the page, which is where an operator has to be."""
    return "\n".join(line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| "))


def words() -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", rows()))))


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_the_dsl_is_in_a_table_of_the_page(name: str, methods: frozenset[tuple[str, str]]) -> None:
    of_class = {method for owner, method in methods if owner == name} - OTHERS
    assert of_class, name
    assert of_class - words() == set()


@pytest.mark.parametrize("name", TYPES)
def test_every_type_that_an_application_names_is_in_a_table_of_the_page(name: str) -> None:
    assert name in words()
