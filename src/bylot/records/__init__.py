"""Records of experiments: one table, kept in a folder that a run can be continued in."""

from bylot.records.code import code_digest
from bylot.records.folder import FORM, VERSION, read
from bylot.records.store import Store
from bylot.records.table import SCHEMA, Records

__all__ = ["FORM", "SCHEMA", "VERSION", "Records", "Store", "code_digest", "read"]
