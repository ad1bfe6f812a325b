"""The dashboard: pages that show that routers learn and keep their promises, each with a twin in
JSON. What is shown comes from a `Source`; nothing here changes a router.
"""
