"""``python -m saltext_ha.cli``."""

import sys

from saltext_ha.cli.program import main

sys.exit(main())
