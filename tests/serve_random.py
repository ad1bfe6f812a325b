"""`bylot serve` with `random` as its default policy, which is compiled in a few seconds.

`python -m serve_random serve ...` is a server that is soon ready with an empty cache.
"""

import sys

from bylot.cli import main
from bylot.server import policy_compiler
from bylot_paper.policies.random_panels import Random

if __name__ == "__main__":
    vars(policy_compiler)["resolve_policy"] = lambda *_: Random()
    sys.exit(main(sys.argv[1:]))
