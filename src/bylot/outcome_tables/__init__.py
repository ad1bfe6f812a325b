"""Tables in CSV or Parquet: outcomes and skills of experts, and the sheets they are read from."""
