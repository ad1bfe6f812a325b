"""`python -m other_release serve ...`: bylot as another release, named by OTHER_RELEASE, whose
messages to other servers have the format OTHER_FORMAT.
"""

import os
import sys

import bylot

bylot.__version__ = os.environ["OTHER_RELEASE"]

from bylot.cli import main  # noqa: E402
from bylot.server import peers  # noqa: E402

peers.MESSAGE_FORMAT = os.environ.get("OTHER_FORMAT", peers.MESSAGE_FORMAT)

if __name__ == "__main__":
    sys.exit(main())
