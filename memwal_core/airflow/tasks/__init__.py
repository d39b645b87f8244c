"""What the tasks of the DAGs do in their own process: plain values in, JSON-able values out.

Owns no state. The DAG files call these functions inside their tasks and decide nothing; what runs
long runs in a Spark job. May import everything but the tests' fakes.
"""
