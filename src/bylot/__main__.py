"""`python -m bylot`."""

import sys

from bylot.cli import main

sys.exit(main())
