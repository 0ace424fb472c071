"""Export of fitted rankers to ONNX, Elasticsearch, OpenSearch and Solr."""

from sinkprop.export.elasticsearch import elasticsearch_features, to_elasticsearch
from sinkprop.export.onnx_calibration import calibration_to_onnx
from sinkprop.export.onnx_models import to_onnx
from sinkprop.export.solr import solr_features, to_solr
from sinkprop.export.write import write_export

__all__ = [
    "calibration_to_onnx",
    "elasticsearch_features",
    "solr_features",
    "to_elasticsearch",
    "to_onnx",
    "to_solr",
    "write_export",
]
