"""Region specs: how rows map to regions, evaluated column by column.

Keeps no state: a spec is stored in the MemWAL index (its messages come from ``codec``), a region's
value in its manifest. Here are their meaning and the one evaluation that writers route by and
readers prune by. May import ``pb`` (``codec`` only) and the top-level modules.
"""

from memwal_core.format.region_spec.codec import spec_from_message, spec_to_message
from memwal_core.format.region_spec.model import MANUAL_SPEC_ID, RegionField, RegionSpec
from memwal_core.format.region_spec.region_value import RegionValue, decode_region_value, encode_region_value
from memwal_core.region.spec.constructors import bucket_spec, identity_spec, multi_bucket_spec, next_spec_id
from memwal_core.region.spec.evaluate import evaluate_field, evaluate_spec
from memwal_core.region.spec.routing import RegionRouter, RoutedRows
from memwal_core.region.spec.validate import SpecWarning, validate_new_spec, validate_spec

__all__ = [
    "MANUAL_SPEC_ID",
    "RegionField",
    "RegionRouter",
    "RegionSpec",
    "RegionValue",
    "RoutedRows",
    "SpecWarning",
    "bucket_spec",
    "decode_region_value",
    "encode_region_value",
    "evaluate_field",
    "evaluate_spec",
    "identity_spec",
    "multi_bucket_spec",
    "next_spec_id",
    "spec_from_message",
    "spec_to_message",
    "validate_new_spec",
    "validate_spec",
]
