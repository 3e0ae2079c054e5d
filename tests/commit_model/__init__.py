"""The model checker of the commit protocols: every schedule of a small world, and what must hold in each state.

`explore` searches; `log_model` is the embedded log's commit, `kafka_model` Kafka's, `startpoint_model` what becomes of
startpoints on either. Nothing that runs a job imports it.
"""

from commit_model.explore import Counterexample, Exploration, Model, explore
from commit_model.kafka_model import KafkaModel
from commit_model.kafka_values import KafkaBounds, KafkaSafeguards
from commit_model.log_model import LogModel
from commit_model.log_values import Bounds, Safeguards
from commit_model.sibling_model import SiblingBounds, SiblingModel, SiblingSafeguards
from commit_model.startpoint_model import StartpointBounds, StartpointModel, StartpointSafeguards

__all__ = [
    "Bounds",
    "Counterexample",
    "Exploration",
    "KafkaBounds",
    "KafkaModel",
    "KafkaSafeguards",
    "LogModel",
    "Model",
    "Safeguards",
    "SiblingBounds",
    "SiblingModel",
    "SiblingSafeguards",
    "StartpointBounds",
    "StartpointModel",
    "StartpointSafeguards",
    "explore",
]
