"""The model checker of the commit protocols: every schedule of a small world, and what must hold in each state.

`explore` searches; `log_model` is the embedded log's commit, `kafka_model` Kafka's, `startpoint_model` what becomes of
startpoints on either, `sibling_model` virtual tasks at work, `elasticity_model` a change of the elasticity factor,
`group_model` the grants of a group. Nothing that runs a job imports it.
"""

from commit_model.elasticity_model import ElasticityModel
from commit_model.elasticity_values import ElasticityBounds, ElasticitySafeguards
from commit_model.explore import Counterexample, Exploration, Model, dead_end, explore
from commit_model.group_model import GroupBounds, GroupModel, GroupSafeguards
from commit_model.kafka_model import KafkaModel
from commit_model.kafka_values import KafkaBounds, KafkaSafeguards
from commit_model.log_model import LogModel
from commit_model.log_values import Bounds, Safeguards
from commit_model.sibling_model import SiblingBounds, SiblingModel, SiblingSafeguards
from commit_model.startpoint_model import StartpointBounds, StartpointModel, StartpointSafeguards

__all__ = [
    "Bounds",
    "Counterexample",
    "ElasticityBounds",
    "ElasticityModel",
    "ElasticitySafeguards",
    "Exploration",
    "GroupBounds",
    "GroupModel",
    "GroupSafeguards",
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
    "dead_end",
    "explore",
]
