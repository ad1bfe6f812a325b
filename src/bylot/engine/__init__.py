"""Where jobs run: on threads here, or on a Ray cluster; the results are the same."""

from bylot.engine.cluster import Cluster
from bylot.engine.job import Done, Engine, JobFailed
from bylot.engine.progress import Progress, progress
from bylot.engine.threads import Threads

__all__ = ["Cluster", "Done", "Engine", "JobFailed", "Progress", "Threads", "progress"]
