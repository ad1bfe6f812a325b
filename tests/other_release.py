"""`python -m other_release serve ...`: bylot as another release, named by OTHER_RELEASE, whose
messages to other servers have the format OTHER_FORMAT.
"""

import os
import sys

import bylot

if __name__ == "__main__":
    bylot.__version__ = os.environ["OTHER_RELEASE"]  # before other modules read it

    from bylot.cli import main
    from bylot.server import peers

    peers.MESSAGE_FORMAT = os.environ.get("OTHER_FORMAT", peers.MESSAGE_FORMAT)
    sys.exit(main())
